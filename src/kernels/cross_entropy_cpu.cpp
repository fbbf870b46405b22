// Cross-entropy of one shard's logits on the CPU; a row of a typical vocabulary stays in the second-level cache.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"
#include "kernels/cross_entropy_loops.h"
#include "kernels/tile_product.h"

namespace shiftron::fast {
namespace {

template <typename T>
SHIFTRON_INLINE float maximum_row(const T* logits, int64_t count) {
  int32_t order = order_of(-INFINITY);
#pragma omp simd reduction(max : order)
  for (int64_t i = 0; i < count; ++i) order = std::max(order, order_of(to_accumulate(logits[i])));
  return value_of(order);
}
SHIFTRON_CLONES float maximum_of(const float* logits, int64_t count) {
  return maximum_row(logits, count);
}
SHIFTRON_CLONES float maximum_by_clones(const bfloat16* logits, int64_t count) {
  return maximum_row(logits, count);
}
bool by_vectors() {
  static const bool here = tile_body(ProductsBy::vectors) != nullptr;
  return here;
}
float maximum_of(const bfloat16* logits, int64_t count) {
  return by_vectors() ? maximum_of_vectors(logits, count) : maximum_by_clones(logits, count);
}

template <typename T>
SHIFTRON_INLINE float exponential_sum_row(const T* logits, int64_t count, float reference) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += exponential(to_accumulate(logits[i]) - reference);
  return sum;
}
SHIFTRON_CLONES float exponential_sum(const float* logits, int64_t count, float reference) {
  return exponential_sum_row(logits, count, reference);
}
SHIFTRON_CLONES float exponential_sum_by_clones(const bfloat16* logits, int64_t count, float reference) {
  return exponential_sum_row(logits, count, reference);
}
float exponential_sum(const bfloat16* logits, int64_t count, float reference) {
  return by_vectors() ? exponential_sum_of_vectors(logits, count, reference)
                      : exponential_sum_by_clones(logits, count, reference);
}

// out = maximum, Σ exp(logit − maximum)
template <typename T>
void statistics_of(const T* logits, int64_t count, float* out) {
  out[0] = maximum_of(logits, count);
  out[1] = exponential_sum(logits, count, out[0] == -INFINITY ? 0.0f : out[0]);  // −∞ − −∞ is NaN
}

template <typename T>
SHIFTRON_INLINE void probabilities_row(T* logits, int64_t count, float log_sum_exp, float scale) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    logits[i] = round_to<T>(exponential(to_accumulate(logits[i]) - log_sum_exp) * scale);
  }
}
SHIFTRON_CLONES void probabilities(float* logits, int64_t count, float log_sum_exp, float scale) {
  probabilities_row(logits, count, log_sum_exp, scale);
}
SHIFTRON_CLONES void probabilities_by_clones(bfloat16* logits, int64_t count, float log_sum_exp, float scale) {
  probabilities_row(logits, count, log_sum_exp, scale);
}
void probabilities(bfloat16* logits, int64_t count, float log_sum_exp, float scale) {
  by_vectors() ? probabilities_of_vectors(logits, count, log_sum_exp, scale)
               : probabilities_by_clones(logits, count, log_sum_exp, scale);
}

// Whether no logit before the target's is as large; the target is at `place`, or not in this shard (−1).
template <typename T>
bool is_likeliest(const T* logits, int64_t place, float maximum) {
  return place >= 0 && to_accumulate(logits[place]) == maximum && maximum_of(logits, place) < maximum;
}

constexpr int64_t kRows = 8;

// Index of a counted target in this shard, or −1.
int64_t place_of(int32_t target, int64_t vocab_begin, int64_t vocab) {
  const int64_t place = target - vocab_begin;
  return target >= 0 && place >= 0 && place < vocab ? place : -1;
}

template <typename T>
void all_statistics(int threads, const ConstTensor& logits, const int32_t* targets, int64_t vocab_begin,
                    const Tensor& statistics) {
  const int64_t vocab = logits.extent(1);
  parallel_blocks(threads, logits.extent(0), kRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* in = logits.data<T>() + row * logits.stride(0);
      float* out = statistics.data<float>() + row * statistics.stride(0);
      statistics_of(in, vocab, out);
      const int64_t place = place_of(targets[row], vocab_begin, vocab);
      out[2] = place >= 0 ? to_accumulate(in[place]) : 0.0f;
      out[3] = is_likeliest(in, place, out[0]) ? 1.0f : 0.0f;
    }
  });
}

template <typename T>
void all_maxima(int threads, const ConstTensor& logits, int64_t vocab_begin, const Tensor& maxima) {
  const int64_t vocab = logits.extent(1);
  parallel_blocks(threads, logits.extent(0), kRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* in = logits.data<T>() + row * logits.stride(0);
      const float maximum = maximum_of(in, vocab);
      int64_t first = 0;
      while (first + 1 < vocab && to_accumulate(in[first]) != maximum) ++first;
      float* out = maxima.data<float>() + row * maxima.stride(0);
      out[0] = maximum;
      out[1] = static_cast<float>(vocab_begin + first);
    }
  });
}

template <typename T>
void gradient_of(T* values, int64_t vocab, int64_t place, float log_sum_exp, float scale) {
  const float target_logit = place >= 0 ? to_accumulate(values[place]) : 0.0f;
  probabilities(values, vocab, log_sum_exp, scale);
  if (place >= 0) values[place] = round_to<T>(std::expm1(target_logit - log_sum_exp) * scale);
}

template <typename T>
void all_gradients(int threads, const Tensor& logits, const float* log_sum_exp, const int32_t* targets,
                   int64_t vocab_begin, float scale) {
  const int64_t vocab = logits.extent(1);
  parallel_blocks(threads, logits.extent(0), kRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* values = logits.data<T>() + row * logits.stride(0);
      if (targets[row] < 0) {
        std::fill_n(values, vocab, T{});
        continue;
      }
      gradient_of(values, vocab, place_of(targets[row], vocab_begin, vocab), log_sum_exp[row], scale);
    }
  });
}

// A row stays in the cache between its sum and its gradient.
template <typename T>
void all_losses(int threads, const Tensor& logits, const int32_t* targets, float scale, float* losses, float* correct) {
  const int64_t vocab = logits.extent(1);
  parallel_blocks(threads, logits.extent(0), kRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* values = logits.data<T>() + row * logits.stride(0);
      losses[row] = correct[row] = 0.0f;
      if (targets[row] < 0) {
        std::fill_n(values, vocab, T{});
        continue;
      }
      float of_row[2];
      statistics_of(values, vocab, of_row);
      const float log_sum_exp = of_row[0] + std::log(of_row[1]);
      const int64_t place = place_of(targets[row], 0, vocab);
      losses[row] = log_sum_exp - (place >= 0 ? to_accumulate(values[place]) : 0.0f);
      correct[row] = is_likeliest(values, place, of_row[0]) && !std::isnan(losses[row]) ? 1.0f : 0.0f;
      gradient_of(values, vocab, place, log_sum_exp, scale);
    }
  });
}

}  // namespace

void cross_entropy(const CpuOptions& cpu, Tensor logits, ConstTensor targets, double scale, Tensor losses,
                   Tensor correct) {
  const auto* target = targets.data<int32_t>();
  auto* loss = losses.data<float>();
  auto* hit = correct.data<float>();
  const auto factor = static_cast<float>(scale);
  if (logits.dtype() == DType::float32)
    all_losses<float>(cpu.threads, logits, target, factor, loss, hit);
  else
    all_losses<bfloat16>(cpu.threads, logits, target, factor, loss, hit);
}

void cross_entropy_statistics(const CpuOptions& cpu, ConstTensor logits, ConstTensor targets, int64_t vocab_begin,
                              Tensor s) {
  const auto* target = targets.data<int32_t>();
  if (logits.dtype() == DType::float32)
    all_statistics<float>(cpu.threads, logits, target, vocab_begin, s);
  else
    all_statistics<bfloat16>(cpu.threads, logits, target, vocab_begin, s);
}

void first_maximum(const CpuOptions& cpu, ConstTensor logits, int64_t vocab_begin, Tensor maxima) {
  if (logits.dtype() == DType::float32)
    all_maxima<float>(cpu.threads, logits, vocab_begin, maxima);
  else
    all_maxima<bfloat16>(cpu.threads, logits, vocab_begin, maxima);
}

void cross_entropy_backward(const CpuOptions& cpu, Tensor logits, ConstTensor log_sum_exp, ConstTensor targets,
                            int64_t vocab_begin, double scale) {
  const auto* sums = log_sum_exp.data<float>();
  const auto* target = targets.data<int32_t>();
  const auto factor = static_cast<float>(scale);
  if (logits.dtype() == DType::float32)
    all_gradients<float>(cpu.threads, logits, sums, target, vocab_begin, factor);
  else
    all_gradients<bfloat16>(cpu.threads, logits, sums, target, vocab_begin, factor);
}

}  // namespace shiftron::fast
