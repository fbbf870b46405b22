// Vocabulary-parallel cross-entropy over shards, AdamW and the sums of squares before it.
#include <array>

#include "kernels/all_cases.h"
#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

// Loss of [rows, vocab] logits over shards of the vocabulary that begin at `begins`.
struct ShardedLoss {
  ShardedLoss(const Owned& logits_, const std::vector<int64_t>& targets_, std::vector<int64_t> begins_)
      : logits(logits_),
        targets(integers(targets_)),
        begins(std::move(begins_)),
        rows(logits.tensor().extent(0)),
        statistics(DType::float64, {static_cast<int64_t>(begins.size()) - 1, rows, kRowStatistics}),
        log_sum_exp(DType::float64, {rows}),
        losses(DType::float64, {rows}),
        correct(DType::float64, {rows}),
        totals(zeros({kLossTotals})) {}
  Tensor shard(int64_t index) const {
    const auto at = static_cast<size_t>(index);
    return logits.tensor().slice(1, begins[at], begins[at + 1] - begins[at]);
  }
  double loss() {
    totals = zeros({kLossTotals});
    const int64_t shards = statistics.tensor().extent(0);
    for (int64_t i = 0; i < shards; ++i) {
      cross_entropy_statistics(device.stream, shard(i), targets, begins[static_cast<size_t>(i)],
                               statistics.tensor().rows(i, 1).view({rows, kRowStatistics}));
    }
    cross_entropy_combine(device.stream, statistics, targets, log_sum_exp, losses, correct);
    add_losses(device.stream, losses, correct, targets, InOut(totals));
    return totals[0];
  }
  const Owned& logits;
  Owned targets;
  std::vector<int64_t> begins;
  int64_t rows;
  Owned statistics, log_sum_exp, losses, correct, totals;
  Device device;
};

TEST(CrossEntropy, ShardsGiveTheLossOfTheWhole) {
  const Owned logits = random_tensor("logits", {5, 7}, 3);
  const std::vector<int64_t> targets = {0, 6, -1, 3, 2};
  double expected = 0;
  for (int64_t t = 0; t < 5; ++t) {
    if (targets[static_cast<size_t>(t)] < 0) continue;
    double sum = 0;
    for (int64_t j = 0; j < 7; ++j) sum += std::exp(logits[t * 7 + j]);
    expected += std::log(sum) - logits[t * 7 + targets[static_cast<size_t>(t)]];
  }
  for (const auto& begins : std::vector<std::vector<int64_t>>{{0, 7}, {0, 3, 7}, {0, 1, 2, 7}, {0, 0, 7}}) {
    ShardedLoss all(logits, targets, begins);
    EXPECT_NEAR(all.loss(), expected, 1e-13);
    EXPECT_EQ(all.totals[1], 4);
    EXPECT_EQ(all.losses[2], 0);
  }
}

TEST(CrossEntropy, GradientMatchesDifferences) {
  for (const auto& begins : std::vector<std::vector<int64_t>>{{0, 7}, {0, 3, 7}}) {
    const Owned logits = random_tensor("logits", {5, 7}, 2);
    ShardedLoss all(logits, {0, 6, -1, 3, 2}, begins);
    all.loss();
    const Owned gradient(DType::float64, {5, 7}, logits.values());
    ShardedLoss backward(gradient, {0, 6, -1, 3, 2}, begins);
    for (int64_t i = 0; i + 1 < static_cast<int64_t>(begins.size()); ++i) {
      cross_entropy_backward(all.device.stream, InOut(backward.shard(i)), all.log_sum_exp, all.targets,
                             begins[static_cast<size_t>(i)], 0.5);
    }
    expect_gradient("logits", logits, gradient.values(), [&] { return 0.5 * all.loss(); });
    for (int64_t j = 0; j < 7; ++j) EXPECT_EQ(gradient[2 * 7 + j], 0);  // not counted
  }
}

// At once, and by statistics, combination and gradient one after another: the same bits on a CPU.
TEST(CrossEntropy, AWholeVocabularyAtOnceIsTheSame) {
  for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      Device device(DeviceKind::cpu, bodies);
      const DType accumulation = accumulation_type(dtype);
      const std::vector<double> values = random_tensor("logits", {5, 37}, 3).values();
      const Owned at_once(dtype, {5, 37}, values), apart(dtype, {5, 37}, values);
      const Owned targets = integers({0, 36, -1, 3, 17});
      Owned statistics(accumulation, {1, 5, kRowStatistics}), log_sum_exp(accumulation, {5}), losses(accumulation, {5}),
          losses_at_once(accumulation, {5}), correct(accumulation, {5}), correct_at_once(accumulation, {5}),
          totals(DType::float64, {kLossTotals}, {7, 1, 2});
      cross_entropy(device.stream, InOut(at_once.tensor()), targets, 0.5, losses_at_once, correct_at_once);
      cross_entropy_statistics(device.stream, apart, targets, 0, statistics.tensor().view({5, kRowStatistics}));
      cross_entropy_combine(device.stream, statistics, targets, log_sum_exp, losses, correct);
      add_losses(device.stream, losses, correct, targets, InOut(totals));
      cross_entropy_backward(device.stream, InOut(apart.tensor()), log_sum_exp, targets, 0, 0.5);
      EXPECT_EQ(at_once.values(), apart.values()) << name_of(dtype);
      EXPECT_EQ(losses_at_once.values(), losses.values()) << name_of(dtype);
      EXPECT_EQ(correct_at_once.values(), correct.values()) << name_of(dtype);
      EXPECT_EQ(totals[1], 5);
      EXPECT_EQ(totals[2], 2 + correct[0] + correct[1] + correct[3] + correct[4]);
    }
  }
}

TEST(CrossEntropy, NothingCountedIsZero) {
  const Owned logits(DType::float64, {2, 3}, {1, 2, 3, 4, NAN, 6});
  ShardedLoss all(logits, {-1, -1}, {0, 3});
  EXPECT_EQ(all.loss(), 0);
  EXPECT_EQ(all.totals[1], 0);
  cross_entropy_backward(all.device.stream, InOut(logits), all.log_sum_exp, all.targets, 0, 1);
  EXPECT_EQ(logits.values(), std::vector<double>(6));
}

// Large logits neither overflow nor hide; NaN in a counted row reaches the loss.
TEST(CrossEntropy, LargeLogitsAndNaN) {
  for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
    Device device(DeviceKind::cpu, bodies);
    const Owned logits(DType::float32, {2, 3}, {1e4, 1e4 - 1, -1e4, 1, NAN, 2});
    const Owned targets = integers({1, 0});
    Owned statistics(DType::float32, {1, 2, kRowStatistics});
    Owned log_sum_exp(DType::float32, {2});
    Owned losses(DType::float32, {2}), correct(DType::float32, {2});
    Owned totals = zeros({kLossTotals});
    cross_entropy_statistics(device.stream, logits, targets, 0, statistics.tensor().view({2, kRowStatistics}));
    cross_entropy_combine(device.stream, statistics, targets, log_sum_exp, losses, correct);
    add_losses(device.stream, losses, correct, targets, InOut(totals));
    EXPECT_NEAR(losses[0], 1 + std::log1p(std::exp(-1.0)), 2e-3);
    EXPECT_TRUE(std::isnan(losses[1]));
    EXPECT_TRUE(std::isnan(totals[0]));
  }
}

// A shard without a logit above −∞ adds nothing to the sum of the others, and gets no gradient.
TEST(CrossEntropy, AShardMayBeAllMinusInfinity) {
  for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
    Device device(DeviceKind::cpu, bodies);
    const Owned masked(DType::float32, {1, 9}, std::vector<double>(9, -INFINITY));
    const Owned others(DType::float32, {1, 2}, {1, 2});
    const Owned targets = integers({10});
    Owned statistics(DType::float32, {2, 1, kRowStatistics});
    Owned log_sum_exp(DType::float32, {1});
    Owned losses(DType::float32, {1}), correct(DType::float32, {1});
    cross_entropy_statistics(device.stream, masked, targets, 0,
                             statistics.tensor().rows(0, 1).view({1, kRowStatistics}));
    cross_entropy_statistics(device.stream, others, targets, 9,
                             statistics.tensor().rows(1, 1).view({1, kRowStatistics}));
    EXPECT_EQ(statistics[0], -INFINITY);
    EXPECT_EQ(statistics[1], 0);
    cross_entropy_combine(device.stream, statistics, targets, log_sum_exp, losses, correct);
    EXPECT_NEAR(losses[0], std::log1p(std::exp(-1.0)), 1e-6);
    EXPECT_EQ(correct[0], 1);
    cross_entropy_backward(device.stream, InOut(masked.tensor()), log_sum_exp, targets, 0, 1);
    for (int64_t j = 0; j < 9; ++j) EXPECT_EQ(masked[j], 0) << j;
  }
}

// Of equal maxima the first, also where they lie in lanes and blocks of their own.
TEST(CrossEntropy, TheFirstMaximumIsFound) {
  for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
    Device device(DeviceKind::cpu, bodies);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const int64_t vocab : {1, 3, 37, 512}) {
        for (const int64_t first : {int64_t{0}, vocab / 2, vocab - 1}) {
          std::vector<double> values(static_cast<size_t>(2 * vocab), -2);
          for (int64_t j = first; j < vocab; j += 3) values[static_cast<size_t>(j)] = 1.5;
          std::fill_n(values.begin() + vocab, vocab, -INFINITY);
          const Owned logits(dtype, {2, vocab}, values);
          Owned maxima(DType::float32, {2, 2});
          first_maximum(device.stream, logits, 1000, maxima);
          EXPECT_EQ(maxima.values(), (std::vector<double>{1.5, 1000.0 + static_cast<double>(first), -INFINITY, 1000}));
        }
      }
    }
  }
}

// Rows of six logits of the values 1 and 2, all 64 of them, and rows in which something is not finite or zeros differ
// in their sign; each with every target and with none.
struct RowsWithTies {
  std::vector<double> logits;
  std::vector<int64_t> targets;
  std::vector<double> correct;  // by the definition
  static constexpr int64_t kVocab = 6;
  RowsWithTies() {
    const double inf = INFINITY, nan = NAN;
    std::vector<std::vector<double>> rows = {{-0.0, 0, -0.0, 0, -1, -1},     {0, -0.0, 0, -0.0, -1, -1},
                                             {-inf, -inf, -3, -inf, -3, -4}, {-inf, -inf, -inf, -inf, -inf, -inf},
                                             {1, 5, nan, 2, 5, 0},           {1, 2, inf, 3, inf, 4}};
    for (int bits = 0; bits < 64; ++bits) {
      rows.emplace_back();
      for (int j = 0; j < kVocab; ++j) rows.back().push_back(1 + (bits >> j & 1));
    }
    for (const std::vector<double>& row : rows) {
      double sum = 0;
      for (const double logit : row) sum += std::exp(logit);
      const bool finite = std::isfinite(std::log(sum));  // else the loss is NaN
      int64_t first = 0;
      for (int64_t j = 1; j < kVocab; ++j)
        first = row[static_cast<size_t>(j)] > row[static_cast<size_t>(first)] ? j : first;
      for (int64_t target = -1; target < kVocab; ++target) {
        logits.insert(logits.end(), row.begin(), row.end());
        targets.push_back(target);
        correct.push_back(finite && target == first ? 1 : 0);
      }
    }
  }
};

// Of equal logits the lowest token's is the most likely, in one shard and over several, at once and in parts.
TEST(CrossEntropy, CorrectIsTheFirstOfTheLargest) {
  const RowsWithTies rows;
  const auto count = static_cast<int64_t>(rows.targets.size());
  const Owned targets = integers(rows.targets);
  for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      Device device(DeviceKind::cpu, bodies);
      const DType accumulation = accumulation_type(dtype);
      Owned losses(accumulation, {count}), correct(accumulation, {count}), log_sum_exp(accumulation, {count});
      for (const auto& begins : std::vector<std::vector<int64_t>>{{0, 6}, {0, 3, 6}, {0, 1, 2, 6}, {0, 0, 5, 5, 6}}) {
        const Owned logits(dtype, {count, RowsWithTies::kVocab}, rows.logits);
        const int64_t shards = std::ssize(begins) - 1;
        Owned statistics(accumulation, {shards, count, kRowStatistics});
        for (int64_t i = 0; i < shards; ++i) {
          const int64_t begin = begins[static_cast<size_t>(i)], end = begins[static_cast<size_t>(i) + 1];
          cross_entropy_statistics(device.stream, logits.tensor().slice(1, begin, end - begin), targets, begin,
                                   statistics.tensor().rows(i, 1).view({count, kRowStatistics}));
        }
        cross_entropy_combine(device.stream, statistics, targets, log_sum_exp, losses, correct);
        EXPECT_EQ(correct.values(), rows.correct) << name_of(dtype) << ", " << shards << " shards";
      }
      const Owned whole(dtype, {count, RowsWithTies::kVocab}, rows.logits);
      cross_entropy(device.stream, InOut(whole.tensor()), targets, 1, losses, correct);
      EXPECT_EQ(correct.values(), rows.correct) << name_of(dtype);
    }
  }
}

TEST(CrossEntropy, FaultsNameTheValues) {
  Device device;
  const Owned logits = random_tensor("logits", {2, 3});
  Owned statistics(DType::float64, {2, kRowStatistics});
  expect_fault("cross_entropy_statistics: targets is [3], not [2]", [&] {
    cross_entropy_statistics(device.stream, logits, integers({1, 2, 3}), 0, statistics);
  });
  Owned losses(DType::float64, {3}), correct(DType::float64, {2});
  expect_fault("cross_entropy: losses is [3], not [2]", [&] {
    cross_entropy(device.stream, InOut(logits.tensor()), integers({1, 2}), 1, losses, correct);
  });
  Owned maxima(DType::float64, {2, 2});
  expect_fault("first_maximum: tokens 16777214 to 16777217",
               [&] { first_maximum(device.stream, logits, (1 << 24) - 2, maxima); });
  expect_fault("log_sum_exp is [3], not [2]", [&] {
    cross_entropy_backward(device.stream, InOut(logits), random_tensor("l", {3}), integers({1, 2}), 0, 1);
  });
}

struct Moments {
  double p, m, v;
};

// Decoupled decay, epsilon outside of the root, bias corrections from the device, in the order of PyTorch.
TEST(AdamW, FollowsTheFormulaOverThreeSteps) {
  Device device;
  const AdamW how{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-3};
  Owned p = random_tensor("p", {5});
  Owned m = zeros({5});
  Owned v = zeros({5});
  std::array<Moments, 5> expected{};
  for (int64_t i = 0; i < 5; ++i) expected[static_cast<size_t>(i)] = {p[i], 0, 0};
  for (int step = 1; step <= 3; ++step) {
    Owned gradient = random_tensor(std::to_string(step), {5});
    const double c1 = 1 - std::pow(0.9, step);
    const double c2 = 1 - std::pow(0.95, step);
    for (int64_t i = 0; i < 5; ++i) {
      Moments& e = expected[static_cast<size_t>(i)];
      const double g = gradient[i] * 0.25;
      e.m = 0.9 * e.m + 0.1 * g;
      e.v = 0.95 * e.v + 0.05 * g * g;
      e.p = e.p * (1 - 0.03 * 0.1) - 0.03 * (e.m / c1) / (std::sqrt(e.v / c2) + 1e-3);
    }
    const Owned scalars(DType::float64, {kUpdateScalars}, {0.01, 0.25, c1, c2, 0});
    adamw(device.stream, how, scalars,
          {{.weight_decay = 0.1,
            .learning_rate_scale = 3,
            .gradient = gradient,
            .weight = p,
            .first_moment = m,
            .second_moment = v}});
    for (int64_t i = 0; i < 5; ++i) {
      const Moments& e = expected[static_cast<size_t>(i)];
      EXPECT_NEAR(p[i], e.p, 1e-14);
      EXPECT_NEAR(m[i], e.m, 1e-15);
      EXPECT_NEAR(v[i], e.v, 1e-15);
    }
  }
}

// A skipped step changes nothing, whatever the gradient is.
TEST(AdamW, SkipChangesNothing) {
  for (const bool halves : {false, true}) {
    for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
      Device device(DeviceKind::cpu, bodies);
      const AdamW how{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
      const Owned scalars(DType::float64, {kUpdateScalars}, {0.01, NAN, 0.1, 0.05, 1});
      Owned gradient(DType::float32, {3}, {NAN, INFINITY, 1});
      Owned p(halves ? DType::bfloat16 : DType::float32, {3}, {1, 2, 3});
      Owned rest(DType::uint16, {3}, {10, 40000, 65535});
      Owned m(DType::float32, {3}, {4, 5, 6});
      Owned v(DType::float32, {3}, {7, 8, 9});
      const auto update = [&](const Owned& g) {
        adamw(device.stream, how, scalars,
              {{.weight_decay = 0.1,
                .to_unit_interval = true,
                .gradient = g,
                .weight = p,
                .rest = halves ? rest.tensor() : Tensor(),
                .first_moment = m,
                .second_moment = v}});
      };
      update(gradient);
      EXPECT_EQ(p.values(), (std::vector<double>{1, 2, 3}));
      EXPECT_EQ(rest.values(), (std::vector<double>{10, 40000, 65535}));
      EXPECT_EQ(m.values(), (std::vector<double>{4, 5, 6}));
      EXPECT_EQ(v.values(), (std::vector<double>{7, 8, 9}));
      expect_fault("adamw: gradient is [2], not [3]", [&] { update(Owned(DType::float32, {2})); });
    }
  }
}

// The outcome of a call of a list, and of calls of its parts.
void expect_same_bits(const std::function<void(std::vector<KernelCase>&, bool one_by_one)>& add) {
  std::vector<KernelCase> cases;
  add(cases, false);
  add(cases, true);
  for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      const How how{.dtype = dtype, .bodies = bodies};
      SCOPED_TRACE(name_of(dtype));
      expect_same_results(cases[0], evaluate(cases[0], how), evaluate(cases[1], how));
    }
  }
}

const std::vector<int64_t> kListed = {0, 7, 264, 40'003, 1, 0, 1031, 16};

TEST(AdamW, AListIsUpdatedAsItsParametersAre) {
  expect_same_bits(
      [](std::vector<KernelCase>& cases, bool one_by_one) { add_adamw_list_case(cases, kListed, one_by_one); });
}

TEST(AdamW, ListsOfOneTypeAloneAreTaken) {
  Device device;
  const Owned scalars(DType::float64, {kUpdateScalars});
  const auto parameter = [](const Owned& all) {
    return AdamWParameter{.gradient = all, .weight = all, .first_moment = all, .second_moment = all};
  };
  const Owned narrow(DType::float32, {3}), wide(DType::float64, {3});
  expect_fault("adamw: a parameter is updated in float64, but the first one in float32", [&] {
    adamw(device.stream, {}, scalars, {parameter(narrow), parameter(wide)});
  });
  adamw(device.stream, {}, {}, {});
  EXPECT_TRUE(device.ledger.kernels().empty());
}

TEST(SumOfSquares, OfAListAreThoseOfItsTensors) {
  for (const int64_t of_a_sum : {1, 3}) {
    expect_same_bits([of_a_sum](std::vector<KernelCase>& cases, bool one_by_one) {
      add_squares_list_case(cases, kListed, of_a_sum, one_by_one);
    });
  }
}

TEST(SumOfSquares, FaultsNameTheValues) {
  Device device;
  const Owned x(DType::float32, {3}, {1, 2, 3}), wide = zeros({3}), sums = zeros({4});
  const auto sum = [&](const std::vector<Squares>& squares) { sum_of_squares(device.stream, squares, InOut(sums)); };
  expect_fault("sum_of_squares: sum 1 of 4 after sum 2", [&] { sum({{x, 2}, {x, 1}}); });
  expect_fault("sum_of_squares: sum 4 of 4 after sum 3", [&] { sum({{x, 3}, {x, 4}}); });
  expect_fault("sum_of_squares: sum -1 of 4", [&] { sum({{x, -1}}); });
  expect_fault("sum_of_squares: x holds float64, not float32", [&] { sum({{x, 0}, {wide, 1}}); });
  sum({});
  EXPECT_EQ(sums.values(), std::vector<double>(4));
  EXPECT_TRUE(device.ledger.kernels().empty());
  sum({{x, 1}, {x, 1}, {x, 3}});
  EXPECT_EQ(sums.values(), (std::vector<double>{0, 28, 0, 14}));
}

}  // namespace
}  // namespace shiftron::kernel_testing
