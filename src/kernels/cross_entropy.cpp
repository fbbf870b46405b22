// Front ends of the vocabulary-parallel cross-entropy.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {
namespace {

// Checks the rows of logits and their targets.
void check_logits(Stream& stream, const char* name, ConstTensor logits, ConstTensor targets) {
  check_dims(name, "logits", logits, 2);
  check_floating(name, "logits", logits);
  check_argument(stream, name, "logits", logits, logits.dtype(), logits.shape());
  check_argument(stream, name, "targets", targets, DType::int32, {logits.extent(0)});
}

}  // namespace

void cross_entropy_statistics(Stream& stream, ConstTensor logits, ConstTensor targets, int64_t vocab_begin,
                              Tensor statistics) {
  constexpr const char* kName = "cross_entropy_statistics";
  check_logits(stream, kName, logits, targets);
  const DType dtype = logits.dtype();
  const int64_t rows = logits.extent(0);
  check_argument(stream, kName, "statistics", statistics, accumulation_type(dtype), {rows, kRowStatistics});
  launch(stream, kName, {logits, targets}, {statistics}, 4 * logits.count(), dtype,
         BodyTable{specification::cross_entropy_statistics, fast::cross_entropy_statistics,
                   SHIFTRON_CUDA_BODY(cross_entropy_statistics)},
         logits, targets, vocab_begin, statistics);
}

void cross_entropy(Stream& stream, InOut logits, ConstTensor targets, double scale, Tensor losses, Tensor correct) {
  constexpr const char* kName = "cross_entropy";
  const Tensor values = logits.tensor;
  check_logits(stream, kName, values, targets);
  const DType dtype = values.dtype();
  const int64_t rows = values.extent(0);
  check_argument(stream, kName, "losses", losses, accumulation_type(dtype), {rows});
  check_argument(stream, kName, "correct", correct, accumulation_type(dtype), {rows});
  launch(stream, kName, {values, targets}, {values, losses, correct}, 8 * values.count(), dtype,
         BodyTable{specification::cross_entropy, fast::cross_entropy, SHIFTRON_CUDA_BODY(cross_entropy)}, values,
         targets, scale, losses, correct);
}

void first_maximum(Stream& stream, ConstTensor logits, int64_t vocab_begin, Tensor maxima) {
  constexpr const char* kName = "first_maximum";
  check_dims(kName, "logits", logits, 2);
  check_floating(kName, "logits", logits);
  const DType dtype = logits.dtype();
  CHECK(logits.extent(1) > 0 && vocab_begin + logits.extent(1) <= int64_t{1} << 24, kName, ": tokens ", vocab_begin,
        " to ", vocab_begin + logits.extent(1), " are none, or too large");
  check_argument(stream, kName, "logits", logits, dtype, logits.shape());
  check_argument(stream, kName, "maxima", maxima, accumulation_type(dtype), {logits.extent(0), 2});
  launch(stream, kName, {logits}, {maxima}, 2 * logits.count(), dtype,
         BodyTable{specification::first_maximum, fast::first_maximum, SHIFTRON_CUDA_BODY(first_maximum)}, logits,
         vocab_begin, maxima);
}

void cross_entropy_combine(Stream& stream, ConstTensor statistics, ConstTensor targets, Tensor log_sum_exp,
                           Tensor losses, Tensor correct) {
  constexpr const char* kName = "cross_entropy_combine";
  check_dims(kName, "statistics", statistics, 3);
  check_floating(kName, "statistics", statistics);
  const DType dtype = accumulation_type(statistics.dtype());
  const int64_t shards = statistics.extent(0);
  const int64_t rows = statistics.extent(1);
  check_argument(stream, kName, "statistics", statistics, dtype, {shards, rows, kRowStatistics});
  check_argument(stream, kName, "targets", targets, DType::int32, {rows});
  check_argument(stream, kName, "log_sum_exp", log_sum_exp, dtype, {rows});
  check_argument(stream, kName, "losses", losses, dtype, {rows});
  check_argument(stream, kName, "correct", correct, dtype, {rows});
  launch(stream, kName, {statistics, targets}, {log_sum_exp, losses, correct}, 5 * shards * rows, dtype,
         BodyTable{specification::cross_entropy_combine, nullptr, SHIFTRON_CUDA_BODY(cross_entropy_combine)},
         statistics, targets, log_sum_exp, losses, correct);
}

void add_losses(Stream& stream, ConstTensor losses, ConstTensor correct, ConstTensor targets, InOut totals) {
  constexpr const char* kName = "add_losses";
  check_dims(kName, "losses", losses, 1);
  check_floating(kName, "losses", losses);
  const DType dtype = accumulation_type(losses.dtype());
  const int64_t rows = losses.extent(0);
  check_argument(stream, kName, "losses", losses, dtype, {rows});
  check_argument(stream, kName, "correct", correct, dtype, {rows});
  check_argument(stream, kName, "targets", targets, DType::int32, {rows});
  check_argument(stream, kName, "totals", totals.tensor, DType::float64, {kLossTotals});
  launch(stream, kName, {losses, correct, targets, totals.tensor}, {totals.tensor}, 2 * rows, dtype,
         BodyTable{specification::add_losses, nullptr, SHIFTRON_CUDA_BODY(add_losses)}, losses, correct, targets,
         totals.tensor);
}

void cross_entropy_backward(Stream& stream, InOut logits, ConstTensor log_sum_exp, ConstTensor targets,
                            int64_t vocab_begin, double scale) {
  constexpr const char* kName = "cross_entropy_backward";
  const Tensor values = logits.tensor;
  check_logits(stream, kName, values, targets);
  const DType dtype = values.dtype();
  check_argument(stream, kName, "log_sum_exp", log_sum_exp, accumulation_type(dtype), {values.extent(0)});
  launch(stream, kName, {values, log_sum_exp, targets}, {values}, 4 * values.count(), dtype,
         BodyTable{specification::cross_entropy_backward, fast::cross_entropy_backward,
                   SHIFTRON_CUDA_BODY(cross_entropy_backward)},
         values, log_sum_exp, targets, vocab_begin, scale);
}

}  // namespace shiftron
