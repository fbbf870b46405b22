// Front ends of the vocabulary-parallel cross-entropy, and the combination over shards, which needs no fast body.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/element.h"
#include "kernels/launch.h"

namespace shiftron {

void cross_entropy_statistics(Stream& stream, ConstTensor logits, ConstTensor targets, int64_t vocab_begin,
                              Tensor statistics) {
  constexpr const char* kName = "cross_entropy_statistics";
  check_dims(kName, "logits", logits, 2);
  check_floating(kName, "logits", logits);
  const DType dtype = logits.dtype();
  const int64_t rows = logits.extent(0);
  check_argument(stream, kName, "logits", logits, dtype, logits.shape());
  check_argument(stream, kName, "targets", targets, DType::int32, {rows});
  check_argument(stream, kName, "statistics", statistics, accumulation_type(dtype), {rows, 3});
  const Launch launch(stream, kName, {logits, targets}, {statistics}, 4 * logits.count());
  if (!launch.runs()) return;
  use_fast(stream, dtype) ? fast::cross_entropy_statistics(stream, logits, targets, vocab_begin, statistics)
                          : specification::cross_entropy_statistics(stream, logits, targets, vocab_begin, statistics);
}

void cross_entropy_combine(Stream& stream, ConstTensor statistics, ConstTensor targets, Tensor log_sum_exp,
                           Tensor losses, InOut totals) {
  constexpr const char* kName = "cross_entropy_combine";
  check_dims(kName, "statistics", statistics, 3);
  check_floating(kName, "statistics", statistics);
  const DType dtype = accumulation_type(statistics.dtype());
  const int64_t shards = statistics.extent(0);
  const int64_t rows = statistics.extent(1);
  check_argument(stream, kName, "statistics", statistics, dtype, {shards, rows, 3});
  check_argument(stream, kName, "targets", targets, DType::int32, {rows});
  check_argument(stream, kName, "log_sum_exp", log_sum_exp, dtype, {rows});
  check_argument(stream, kName, "losses", losses, dtype, {rows});
  check_argument(stream, kName, "totals", totals.tensor, DType::float64, {2});
  const Launch launch(stream, kName, {statistics, targets, totals.tensor}, {log_sum_exp, losses, totals.tensor},
                      5 * shards * rows);
  if (!launch.runs()) return;
  for_type(dtype, [&](auto element) {
    using A = Accumulation<decltype(element)>;
    double total = 0;
    double counted = 0;
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
      const A log_sum = maximum + std::log(sum);
      const bool counts = targets.data<int32_t>()[row] >= 0;
      log_sum_exp.data<A>()[row] = log_sum;
      losses.data<A>()[row] = counts ? log_sum - target : A{0};
      if (!counts) continue;
      total += static_cast<double>(log_sum - target);
      counted += 1;
    }
    totals.tensor.data<double>()[0] += total;
    totals.tensor.data<double>()[1] += counted;
  });
}

void cross_entropy_backward(Stream& stream, InOut logits, ConstTensor log_sum_exp, ConstTensor targets,
                            int64_t vocab_begin, double scale) {
  constexpr const char* kName = "cross_entropy_backward";
  const Tensor values = logits.tensor;
  check_dims(kName, "logits", values, 2);
  check_floating(kName, "logits", values);
  const DType dtype = values.dtype();
  const int64_t rows = values.extent(0);
  check_argument(stream, kName, "logits", values, dtype, values.shape());
  check_argument(stream, kName, "log_sum_exp", log_sum_exp, accumulation_type(dtype), {rows});
  check_argument(stream, kName, "targets", targets, DType::int32, {rows});
  const Launch launch(stream, kName, {values, log_sum_exp, targets}, {values}, 4 * values.count());
  if (!launch.runs()) return;
  use_fast(stream, dtype)
      ? fast::cross_entropy_backward(stream, values, log_sum_exp, targets, vocab_begin, scale)
      : specification::cross_entropy_backward(stream, values, log_sum_exp, targets, vocab_begin, scale);
}

}  // namespace shiftron
