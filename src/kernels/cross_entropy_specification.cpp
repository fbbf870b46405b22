// Reference implementation of one shard's part of the cross-entropy and of its gradient.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {

void cross_entropy_statistics(const CpuOptions&, ConstTensor logits, ConstTensor targets, int64_t vocab_begin,
                              Tensor statistics) {
  for_type(logits.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    const int64_t vocab = logits.extent(1);
    for (int64_t row = 0; row < logits.extent(0); ++row) {
      const T* in = logits.data<T>() + row * logits.stride(0);
      A* out = statistics.data<A>() + row * statistics.stride(0);
      A maximum = -std::numeric_limits<A>::infinity();
      for (int64_t j = 0; j < vocab; ++j) maximum = std::max(maximum, to_accumulate(in[j]));
      const A reference = maximum == -std::numeric_limits<A>::infinity() ? A{0} : maximum;  // −∞ − −∞ is NaN
      A sum = 0;
      for (int64_t j = 0; j < vocab; ++j) sum += std::exp(to_accumulate(in[j]) - reference);
      const int64_t target = targets.data<int32_t>()[row] - vocab_begin;
      const bool here = targets.data<int32_t>()[row] >= 0 && target >= 0 && target < vocab;
      int64_t first = 0;
      while (first < vocab && to_accumulate(in[first]) != maximum) ++first;
      out[0] = maximum;
      out[1] = sum;
      out[2] = here ? to_accumulate(in[target]) : A{0};
      out[3] = here && target == first && maximum > -std::numeric_limits<A>::infinity() ? A{1} : A{0};
    }
  });
}

void first_maximum(const CpuOptions&, ConstTensor logits, int64_t vocab_begin, Tensor maxima) {
  for_type(logits.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    for (int64_t row = 0; row < logits.extent(0); ++row) {
      const T* in = logits.data<T>() + row * logits.stride(0);
      int64_t first = 0;
      for (int64_t j = 1; j < logits.extent(1); ++j) {
        if (to_accumulate(in[j]) > to_accumulate(in[first])) first = j;
      }
      A* out = maxima.data<A>() + row * maxima.stride(0);
      out[0] = to_accumulate(in[first]);
      out[1] = static_cast<A>(vocab_begin + first);
    }
  });
}

void cross_entropy_backward(const CpuOptions&, Tensor logits, ConstTensor log_sum_exp, ConstTensor targets,
                            int64_t vocab_begin, double scale) {
  for_type(logits.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    for (int64_t row = 0; row < logits.extent(0); ++row) {
      T* values = logits.data<T>() + row * logits.stride(0);
      const int64_t target = targets.data<int32_t>()[row];
      const A log_sum = log_sum_exp.data<A>()[row];
      for (int64_t j = 0; j < logits.extent(1); ++j) {
        const A probability = std::exp(to_accumulate(values[j]) - log_sum);
        const A one = target - vocab_begin == j ? A{1} : A{0};
        values[j] = target < 0 ? T{} : round_to<T>((probability - one) * static_cast<A>(scale));
      }
    }
  });
}

void add_losses(const CpuOptions&, ConstTensor losses, ConstTensor correct, ConstTensor targets, Tensor totals) {
  double total = 0;
  double counted = 0;
  double all_correct = 0;
  for_type(losses.dtype(), [&](auto element) {
    using A = decltype(element);
    for (int64_t row = 0; row < losses.extent(0); ++row) {
      if (targets.data<int32_t>()[row] < 0) continue;
      total += static_cast<double>(to_accumulate(losses.data<A>()[row]));
      counted += 1;
      all_correct += static_cast<double>(to_accumulate(correct.data<A>()[row]));
    }
  });
  totals.data<double>()[0] += total;
  totals.data<double>()[1] += counted;
  totals.data<double>()[2] += all_correct;
}

void cross_entropy(const CpuOptions& cpu, Tensor logits, ConstTensor targets, double scale, Tensor losses,
                   Tensor correct) {
  for_type(losses.dtype(), [&](auto element) {
    using A = decltype(element);
    const int64_t rows = logits.extent(0);
    std::vector<A> statistics(static_cast<size_t>(kRowStatistics * rows)), log_sum_exp(static_cast<size_t>(rows));
    const Tensor of_rows(statistics.data(), losses.dtype(), {rows, kRowStatistics}, DeviceKind::cpu);
    const Tensor sums(log_sum_exp.data(), losses.dtype(), {rows}, DeviceKind::cpu);
    cross_entropy_statistics(cpu, logits, targets, 0, of_rows);
    cross_entropy_combine(cpu, of_rows.view({1, rows, kRowStatistics}), targets, sums, losses, correct);
    cross_entropy_backward(cpu, logits, sums, targets, 0, scale);
  });
}

void cross_entropy_combine(const CpuOptions&, ConstTensor statistics, ConstTensor targets, Tensor log_sum_exp,
                           Tensor losses, Tensor correct) {
  const int64_t shards = statistics.extent(0);
  const int64_t rows = statistics.extent(1);
  for_type(statistics.dtype(), [&](auto element) {
    using A = Accumulation<decltype(element)>;
    for (int64_t row = 0; row < rows; ++row) {
      const A* first = statistics.data<A>() + row * statistics.stride(1);
      const auto of_shard = [&](int64_t shard, int which) { return first[shard * statistics.stride(0) + which]; };
      A maximum = -std::numeric_limits<A>::infinity();
      for (int64_t shard = 0; shard < shards; ++shard) maximum = std::max(maximum, of_shard(shard, 0));
      A sum = 0;
      A target = 0;
      for (int64_t shard = 0; shard < shards; ++shard) {
        sum += of_shard(shard, 1) * std::exp(of_shard(shard, 0) - maximum);
        target += of_shard(shard, 2);
      }
      int64_t likeliest = 0;  // the first shard that has the maximum
      while (likeliest + 1 < shards && of_shard(likeliest, 0) != maximum) ++likeliest;
      const A log_sum = maximum + std::log(sum);
      const bool counts = targets.data<int32_t>()[row] >= 0;
      const A loss = counts ? log_sum - target : A{0};
      log_sum_exp.data<A>()[row] = log_sum;
      losses.data<A>()[row] = loss;
      correct.data<A>()[row] = counts && !std::isnan(loss) ? of_shard(likeliest, 3) : A{0};
    }
  });
}

}  // namespace shiftron::specification
