// Cross-entropy of one shard's logits in CUDA: one block per row, and one pass over the logits in each direction. With
// the whole vocabulary there is one pass for both, if a block has room to keep the row.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/device_cuda.h"

namespace shiftron::cuda {
namespace {

// Index of a counted target in this shard, or −1.
__device__ int64_t place_of(int32_t target, int64_t vocab_begin, int64_t vocab) {
  const int64_t place = target - vocab_begin;
  return target >= 0 && place >= 0 && place < vocab ? place : -1;
}

// Σ exp(logit − maximum), rescaled when its maximum grows.
struct ExponentialSum {
  float maximum = -INFINITY;
  float sum = 0.0f;
  // The value that is subtracted; without a logit above −∞ the sum is zero.
  __device__ static float reference(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }
  __device__ float scaled_to(float other) const { return sum * expf(maximum - reference(other)); }
};

constexpr int kAhead = 4;  // pieces that a thread loads at a time

// For one row, by the whole block; seen(j, elements) is called with the elements that a thread reads.
template <int kWidth, typename T, typename Seen>
__device__ ExponentialSum sum_of_row(const T* in, int64_t vocab, const Seen& seen) {
  constexpr int64_t kStep = kBlockThreads * kWidth;
  ExponentialSum own;
  for (int64_t first = threadIdx.x * kWidth; first < vocab; first += kAhead * kStep) {
    Elements<T, kWidth> loaded[kAhead];
    for (int k = 0; k < kAhead; ++k) {
      if (first + k * kStep < vocab) loaded[k] = load_elements<kWidth>(in + first + k * kStep);
    }
    float maximum = own.maximum;
    for (int k = 0; k < kAhead; ++k) {
      if (first + k * kStep >= vocab) continue;
      seen(first + k * kStep, loaded[k]);
      for (int i = 0; i < kWidth; ++i) maximum = fmaxf(maximum, to_float(loaded[k][i]));
    }
    own.sum = own.scaled_to(maximum);
    own.maximum = maximum;
    for (int k = 0; k < kAhead; ++k) {
      if (first + k * kStep >= vocab) continue;
      for (int i = 0; i < kWidth; ++i) own.sum += expf(to_float(loaded[k][i]) - ExponentialSum::reference(maximum));
    }
  }
  ExponentialSum whole;
  whole.maximum = block_maximum(own.maximum);
  whole.sum = block_sum(own.scaled_to(whole.maximum));
  return whole;
}

// Whether no logit before the target's is as large; the target is at `place`, or not in this shard (−1). Called by the
// whole block with the same arguments in all threads; each thread reads the same elements of `in` as in sum_of_row.
template <int kWidth, typename T>
__device__ bool is_likeliest(const T* in, int64_t place, float target, float maximum) {
  if (place < 0 || target != maximum) return false;
  float before = -INFINITY;
  for (int64_t j = threadIdx.x * kWidth; j < place; j += kBlockThreads * kWidth) {
    const Elements<T, kWidth> loaded = load_elements<kWidth>(in + j);
    for (int i = 0; i < kWidth && j + i < place; ++i) before = fmaxf(before, to_float(loaded[i]));
  }
  return block_maximum(before) < maximum;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    statistics_kernel(const T* logits, int64_t logits_stride, int64_t vocab, const int32_t* targets,
                      int64_t vocab_begin, float* statistics, int64_t stride) {
  await_earlier_kernels();
  const int64_t row = blockIdx.x;
  const T* const in = logits + row * logits_stride;
  const ExponentialSum whole = sum_of_row<kWidth>(in, vocab, [](int64_t, const Elements<T, kWidth>&) {});
  const int64_t place = place_of(targets[row], vocab_begin, vocab);
  const float target = place >= 0 ? to_float(in[place]) : 0.0f;
  const bool likeliest = is_likeliest<kWidth>(in, place, target, whole.maximum);
  if (threadIdx.x == 0) {
    float* const out = statistics + row * stride;
    out[0] = whole.maximum;
    out[1] = whole.sum;
    out[2] = target;
    out[3] = likeliest ? 1.0f : 0.0f;
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    first_maximum_kernel(const T* logits, int64_t logits_stride, int64_t vocab, int64_t vocab_begin, float* maxima,
                         int64_t stride) {
  await_earlier_kernels();
  const int64_t row = blockIdx.x;
  const T* const in = logits + row * logits_stride;
  float own = -INFINITY;
  int64_t first = threadIdx.x * kWidth;  // the first of this thread, if it has any
  for (int64_t j = first; j < vocab; j += kBlockThreads * kWidth) {
    const Elements<T, kWidth> loaded = load_elements<kWidth>(in + j);
    for (int i = 0; i < kWidth; ++i) {
      const float value = to_float(loaded[i]);
      if (value > own) {
        own = value;
        first = j + i;
      }
    }
  }
  const float maximum = block_maximum(own);
  // The lowest number is the largest negative one; below 2²⁴ floats are exact.
  const float lowest =
      block_maximum(own == maximum && first < vocab ? -static_cast<float>(vocab_begin + first) : -INFINITY);
  if (threadIdx.x == 0) {
    maxima[row * stride] = maximum;
    maxima[row * stride + 1] = -lowest;
  }
}

// Gradients of the calling thread's elements; `to` may be `from`. The target's is computed after the others, so that
// the loop needs no test for it.
template <int kWidth, typename T>
__device__ void gradient_of_row(const T* from, T* to, int64_t vocab, bool counts, int64_t place, float log_sum,
                                float scale) {
  const bool has_target = counts && place >= 0 && place / kWidth % kBlockThreads == threadIdx.x;
  const float target = has_target ? to_float(from[place]) : 0.0f;
  for (int64_t j = threadIdx.x * kWidth; j < vocab; j += kBlockThreads * kWidth) {
    Elements<T, kWidth> stored;
    if (counts) {
      const Elements<T, kWidth> loaded = load_elements<kWidth>(from + j);
      for (int i = 0; i < kWidth; ++i) stored[i] = from_float<T>(expf(to_float(loaded[i]) - log_sum) * scale);
    } else {
      for (int i = 0; i < kWidth; ++i) stored[i] = from_float<T>(0.0f);
    }
    store_elements<kWidth>(to + j, stored);
  }
  if (has_target) to[place] = from_float<T>(expm1f(target - log_sum) * scale);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    gradient_kernel(T* logits, int64_t stride, int64_t vocab, const float* log_sum_exp, const int32_t* targets,
                    int64_t vocab_begin, float scale) {
  await_earlier_kernels();
  const int64_t row = blockIdx.x;
  T* const values = logits + row * stride;
  const int64_t place = place_of(targets[row], vocab_begin, vocab);
  gradient_of_row<kWidth>(values, values, vocab, targets[row] >= 0, place, log_sum_exp[row], scale);
}

// If a row is kept, it is in the block's shared memory, and each thread reads only what it wrote.
template <typename T, int kWidth, bool kKept>
__global__ void __launch_bounds__(kBlockThreads)
    whole_kernel(T* logits, int64_t stride, int64_t vocab, const int32_t* targets, float scale, float* losses,
                 float* correct) {
  await_earlier_kernels();
  SHARED_BYTES(T, kept);
  const int64_t row = blockIdx.x;
  T* const values = logits + row * stride;
  const bool counts = targets[row] >= 0;
  const int64_t place = place_of(targets[row], 0, vocab);
  const float target = place >= 0 ? to_float(values[place]) : 0.0f;  // read before its gradient overwrites it
  const ExponentialSum sum = sum_of_row<kWidth>(values, vocab, [&](int64_t j, const Elements<T, kWidth>& loaded) {
    if constexpr (kKept) store_in_block<kWidth>(kept + j, loaded);
  });
  const float log_sum = sum.maximum + logf(sum.sum);
  const bool likeliest = is_likeliest<kWidth>(kKept ? kept : values, place, target, sum.maximum);
  if (threadIdx.x == 0) {
    losses[row] = counts ? log_sum - target : 0.0f;
    correct[row] = likeliest && !std::isnan(log_sum - target) ? 1.0f : 0.0f;
  }
  gradient_of_row<kWidth>(kKept ? kept : values, values, vocab, counts, place, log_sum, scale);
}

// One thread per row.
__global__ void __launch_bounds__(kBlockThreads)
    combine_kernel(const float* statistics, int64_t shard_stride, int64_t row_stride, int64_t shards, int64_t rows,
                   const int32_t* targets, float* log_sum_exp, float* losses, float* correct) {
  await_earlier_kernels();
  const int64_t row = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (row < rows) {
    const float* const first = statistics + row * row_stride;
    float maximum = -INFINITY;
    for (int64_t shard = 0; shard < shards; ++shard) maximum = fmaxf(maximum, first[shard * shard_stride]);
    float sum = 0.0f;
    float target = 0.0f;
    for (int64_t shard = 0; shard < shards; ++shard) {
      const float* const of_shard = first + shard * shard_stride;
      sum += of_shard[1] * expf(of_shard[0] - maximum);
      target += of_shard[2];
    }
    int64_t likeliest = 0;  // the first shard that has the maximum
    while (likeliest + 1 < shards && first[likeliest * shard_stride] != maximum) ++likeliest;
    const float log_sum = maximum + logf(sum);
    const bool counts = targets[row] >= 0;
    log_sum_exp[row] = log_sum;
    losses[row] = counts ? log_sum - target : 0.0f;
    correct[row] = counts && !std::isnan(log_sum - target) ? first[likeliest * shard_stride + 3] : 0.0f;
  }
}

// totals += (Σ losses, counted, Σ correct) in float64, by one block.
__global__ void __launch_bounds__(kBlockThreads)
    totals_kernel(const float* losses, const float* correct, const int32_t* targets, int64_t rows, double* totals) {
  await_earlier_kernels();
  double loss = 0;
  double counted = 0;
  double all_correct = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kBlockThreads) {
    loss += losses[row];  // 0 where not counted
    counted += targets[row] >= 0 ? 1 : 0;
    all_correct += correct[row];
  }
  loss = block_sum(loss);
  counted = block_sum(counted);
  all_correct = block_sum(all_correct);
  if (threadIdx.x == 0) {
    totals[0] += loss;
    totals[1] += counted;
    totals[2] += all_correct;
  }
}

}  // namespace

void cross_entropy_statistics(const CudaContext& context, ConstTensor logits, ConstTensor targets, int64_t vocab_begin,
                              Tensor statistics) {
  constexpr const char* kName = "cross_entropy_statistics";
  for_device_type(kName, logits.dtype(), in_packs({logits}), [&](auto element, auto width) {
    using T = decltype(element);
    launch_kernel(kName, statistics_kernel<T, decltype(width)::value>, {logits.extent(0)}, kBlockThreads,
                  context.stream, device_data<T>(logits), logits.stride(0), logits.extent(1), targets.data<int32_t>(),
                  vocab_begin, statistics.data<float>(), statistics.stride(0));
  });
}

void first_maximum(const CudaContext& context, ConstTensor logits, int64_t vocab_begin, Tensor maxima) {
  constexpr const char* kName = "first_maximum";
  for_device_type(kName, logits.dtype(), in_packs({logits}), [&](auto element, auto width) {
    using T = decltype(element);
    launch_kernel(kName, first_maximum_kernel<T, decltype(width)::value>, {logits.extent(0)}, kBlockThreads,
                  context.stream, device_data<T>(logits), logits.stride(0), logits.extent(1), vocab_begin,
                  maxima.data<float>(), maxima.stride(0));
  });
}

void cross_entropy_backward(const CudaContext& context, Tensor logits, ConstTensor log_sum_exp, ConstTensor targets,
                            int64_t vocab_begin, double scale) {
  constexpr const char* kName = "cross_entropy_backward";
  for_device_type(kName, logits.dtype(), in_packs({logits}), [&](auto element, auto width) {
    using T = decltype(element);
    launch_kernel(kName, gradient_kernel<T, decltype(width)::value>, {logits.extent(0)}, kBlockThreads, context.stream,
                  device_data<T>(logits), logits.stride(0), logits.extent(1), log_sum_exp.data<float>(),
                  targets.data<int32_t>(), vocab_begin, static_cast<float>(scale));
  });
}

void cross_entropy(const CudaContext& context, Tensor logits, ConstTensor targets, double scale, Tensor losses,
                   Tensor correct) {
  constexpr const char* kName = "cross_entropy";
  const int64_t rows = logits.extent(0), vocab = logits.extent(1);
  const int64_t bytes = vocab * size_of(logits.dtype());
  const bool kept = bytes + kReductionBytes <= context.most_shared;
  for_device_type(kName, logits.dtype(), in_packs({logits}), [&](auto element, auto width) {
    using T = decltype(element);
    constexpr int kWidth = decltype(width)::value;
    launch_kernel(kName, kept ? whole_kernel<T, kWidth, true> : whole_kernel<T, kWidth, false>,
                  {.x = rows, .shared = kept ? bytes : 0}, kBlockThreads, context.stream, device_data<T>(logits),
                  logits.stride(0), vocab, targets.data<int32_t>(), static_cast<float>(scale), losses.data<float>(),
                  correct.data<float>());
  });
}

void cross_entropy_combine(const CudaContext& context, ConstTensor statistics, ConstTensor targets, Tensor log_sum_exp,
                           Tensor losses, Tensor correct) {
  constexpr const char* kName = "cross_entropy_combine";
  check_float32(kName, statistics.dtype());
  const int64_t rows = statistics.extent(1);
  launch_kernel(kName, combine_kernel, grid_for(rows), kBlockThreads, context.stream, statistics.data<float>(),
                statistics.stride(0), statistics.stride(1), statistics.extent(0), rows, targets.data<int32_t>(),
                log_sum_exp.data<float>(), losses.data<float>(), correct.data<float>());
}

void add_losses(const CudaContext& context, ConstTensor losses, ConstTensor correct, ConstTensor targets,
                Tensor totals) {
  check_float32("add_losses", losses.dtype());
  launch_kernel("add_losses", totals_kernel, {}, kBlockThreads, context.stream, losses.data<float>(),
                correct.data<float>(), targets.data<int32_t>(), losses.extent(0), totals.data<double>());
}

}  // namespace shiftron::cuda
