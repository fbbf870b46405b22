// The vocabulary-parallel loss if logits take several row chunks and several blocks of the vocabulary.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <mutex>
#include <vector>

#include "core/philox.h"
#include "kernels/kernels.h"
#include "parallel/tensor_parallel.h"

namespace shiftron {
namespace {

constexpr int64_t kRows = 300, kHidden = 3, kVocab = 33001;  // two ranks hold 16,500 and 16,501 of it
constexpr double kScale = 0.25;

double x_at(int64_t row, int64_t column) {
  return Philox(1, "x").normal(static_cast<uint64_t>(row * kHidden + column));
}
// Of every fifth row the most likely token.
int32_t likeliest_at(int64_t row);
int32_t target_at(int64_t row) {
  if (row % 7 == 3) return -1;
  if (row % 5 == 0) return likeliest_at(row);
  return static_cast<int32_t>(Philox(1, "target").uniform(static_cast<uint64_t>(row)) * kVocab);
}

struct Result {
  double sum = 0, count = 0, correct = 0;
  std::vector<double> losses, d_x, d_head;
  Result() : losses(kRows), d_x(kRows * kHidden), d_head(kVocab * kHidden) {}
};

std::vector<double> weights() {
  Ledger ledger;
  ParameterSet set({}, {}, {DType::float64, DType::float64});
  Parameter* head = set.declare({.name = "head", .shape = {kVocab, kHidden}, .initial = init_normal(1)});
  set.allocate(Stream{.ledger = &ledger}, true);
  set.initialise(1);
  const auto* w = head->weight.data<double>();
  return {w, w + kVocab * kHidden};
}

int32_t likeliest_at(int64_t row) {
  static const std::vector<double> w = weights();
  const auto logit = [&, x = std::array{x_at(row, 0), x_at(row, 1), x_at(row, 2)}](int64_t token) {
    const double* of = w.data() + token * kHidden;
    return x[0] * of[0] + x[1] * of[1] + x[2] * of[2];
  };
  int64_t best = 0;
  for (int64_t token = 1; token < kVocab; ++token) best = logit(token) > logit(best) ? token : best;
  return static_cast<int32_t>(best);
}

Result of_ranks(int tp) {
  Result result;
  std::mutex mutex;
  run_thread_ranks(tp, [&](HostCommunicator& world) {
    Ledger ledger;
    Stream stream{.ledger = &ledger};
    const Groups groups = make_groups(world, ParallelLayout{.tp = tp}, 1);
    ParameterSet set(groups.layout, groups.at, {DType::float64, DType::float64});
    Parameter* head =
        set.declare({.name = "head", .shape = {kVocab, kHidden}, .split_dim = 0, .initial = init_normal(1)});
    set.allocate(stream, true);
    set.initialise(1);
    const int64_t local_rows = kRows / tp, first = groups.at.tp * local_rows;
    const MemoryPlan plan = {{"activations", int64_t{1} << 20}, {"operands", 0}, {"scratch", int64_t{160} << 20}};
    Arena activations(stream, "activations", plan, "activations");
    Arena operands(stream, "operands", plan, "activations");
    Arena scratch(stream, "scratch", plan, "scratch");
    const Tensor x = activations.allocate(DType::float64, {local_rows, kHidden});
    for (int64_t i = 0; i < x.count(); ++i) x.data<double>()[i] = x_at(first + i / kHidden, i % kHidden);
    const Tensor targets = activations.allocate(DType::int32, {kRows});
    for (int64_t row = 0; row < kRows; ++row) targets.data<int32_t>()[row] = target_at(row);
    const Tensor totals = activations.allocate(DType::float64, {kLossTotals});
    const Tensor losses = activations.allocate(DType::float64, {kRows});
    std::fill_n(totals.data<double>(), kLossTotals, 0.0);
    WeightGradientQueue queue;
    Run run{.stream = stream,
            .activations = activations,
            .operands = operands,
            .scratch = scratch,
            .groups = groups,
            .training = true,
            .gather_rows = true,
            .rows = kRows,
            .sequence_length = kRows,
            .documents = {},
            .loss_scale = kScale,
            .microbatch = 0,
            .weight_gradients = queue};
    const VocabularyParallelLoss loss(head);
    VocabularyParallelLoss::Saved saved;
    loss.forward(run, x, targets, saved, totals, losses);
    const std::lock_guard<std::mutex> lock(mutex);
    result.sum = totals.data<double>()[0];
    result.count = totals.data<double>()[1];
    result.correct = totals.data<double>()[2];
    std::copy_n(losses.data<double>(), kRows, result.losses.begin());
    std::copy_n(loss.backward(run, saved).data<double>(), local_rows * kHidden, result.d_x.begin() + first * kHidden);
    std::copy_n(head->gradient.data<double>(), head->gradient.count(),
                result.d_head.begin() + loss.vocabulary().begin * kHidden);
  });
  return result;
}

// −log softmax at the target and its derivatives, row by row.
Result by_definition() {
  Result result;
  const std::vector<double> w = weights();
  std::vector<double> probabilities(kVocab);
  for (int64_t row = 0; row < kRows; ++row) {
    const int32_t target = target_at(row);
    if (target < 0) continue;
    const double x[kHidden] = {x_at(row, 0), x_at(row, 1), x_at(row, 2)};
    double sum = 0;
    for (int64_t token = 0; token < kVocab; ++token) {
      double logit = 0;
      for (int64_t i = 0; i < kHidden; ++i) logit += x[i] * w[token * kHidden + i];
      sum += probabilities[static_cast<size_t>(token)] = std::exp(logit);
    }
    result.losses[static_cast<size_t>(row)] = std::log(sum) - std::log(probabilities[static_cast<size_t>(target)]);
    result.sum += result.losses[static_cast<size_t>(row)];
    result.count += 1;
    result.correct += target == likeliest_at(row) ? 1 : 0;
    for (int64_t token = 0; token < kVocab; ++token) {
      const double d = kScale * (probabilities[static_cast<size_t>(token)] / sum - (token == target ? 1 : 0));
      for (int64_t i = 0; i < kHidden; ++i) {
        result.d_x[static_cast<size_t>(row * kHidden + i)] += d * w[token * kHidden + i];
        result.d_head[static_cast<size_t>(token * kHidden + i)] += d * x[i];
      }
    }
  }
  return result;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(VocabularyParallelLoss, ChunksAndBlocksAreTheWhole) {
  const int64_t chunk = loss_tiles({}, kRows, kVocab, DType::float64).rows;
  ASSERT_LT(chunk, kRows);  // of one rank
  ASSERT_GT(loss_tiles({}, chunk, kVocab, DType::float64).blocks, 1);
  ASSERT_GT(loss_tiles({}, kRows, (kVocab + 1) / 2, DType::float64).blocks, 1);  // of two
  const Result expected = by_definition();
  ASSERT_GT(expected.correct, kRows / 10);
  ASSERT_LT(expected.correct, expected.count / 2);
  for (const int tp : {1, 2}) {
    const Result found = of_ranks(tp);
    EXPECT_EQ(found.count, expected.count) << tp;
    EXPECT_EQ(found.correct, expected.correct) << tp;
    // Sums of 33,001 terms of size 1 with ε = 1.1e-16; the sum over rows is 300 times as large.
    EXPECT_NEAR(found.sum, expected.sum, 1e-9) << tp;
    EXPECT_LT(largest_difference(found.losses, expected.losses), 1e-11) << tp;
    EXPECT_LT(largest_difference(found.d_x, expected.d_x), 1e-11) << tp;
    EXPECT_LT(largest_difference(found.d_head, expected.d_head), 1e-11) << tp;
  }
}

}  // namespace
}  // namespace shiftron
