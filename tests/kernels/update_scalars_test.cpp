// Gradient norm, clip factor, bias corrections and the skip rules of an update, against values computed by hand.
#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

constexpr double kRate = 0.125;

struct Update {
  std::vector<double> counters, scalars, result;
};

// sums: loss, counted, stop requests, squares; the counters are those before the update.
Update update(const UpdateRule& rule, const std::vector<double>& sums, int64_t squares,
              const std::vector<double>& counters = {0, 0, 0}) {
  Device device;
  const Owned all(DType::float64, {static_cast<int64_t>(sums.size())}, sums);
  const Owned counted(DType::float64, {static_cast<int64_t>(counters.size())}, counters);
  const Owned scalars(DType::float64, {kUpdateScalars});
  const Owned result(DType::float64, {kUpdateResults});
  const Owned rate(DType::float64, {1}, {kRate});
  update_scalars(device.stream, rule, all, squares, rate, InOut(counted), scalars, result);
  return {counted.values(), scalars.values(), result.values()};
}

constexpr UpdateRule kRule{.nominal = 12, .clip = 1, .beta1 = 0.5, .beta2 = 0.75};

void expect_values(const std::vector<double>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-14) << "value " << i;
}

// 6 of 12 targets: correction 2; √(9 + 16) = 5, norm 10; factor 2 / (10 + 1e-6); third applied update: 1 − β³.
TEST(UpdateScalars, ClippedUpdateByHand) {
  const Update made = update(kRule, {21, 6, 0, 9, 16}, 2, {2, 5, 3});
  EXPECT_EQ(made.counters, (std::vector<double>{3, 5, 0}));
  expect_values(made.scalars, {kRate, 2 / 10.000001, 0.875, 1 - 0.421875, 0});
  expect_values(made.result, {3.5, 10, 0, 0});
}

// A norm below the clip: the factor is only the correction. Sums after the squares (means of taps) do not count.
TEST(UpdateScalars, UnclippedUpdateByHand) {
  const Update made = update(kRule, {18, 9, 2, 0.04, 0.05, 1e9}, 2);
  EXPECT_EQ(made.counters, (std::vector<double>{1, 0, 0}));
  expect_values(made.scalars, {kRate, 12.0 / 9, 0.5, 0.25, 0});
  expect_values(made.result, {2, 0.4, 0, 2});
}

TEST(UpdateScalars, NothingIsClippedWithClip0) {
  UpdateRule rule = kRule;
  rule.clip = 0;
  const Update made = update(rule, {12, 12, 0, 1e8}, 1);
  expect_values(made.scalars, {kRate, 1, 0.5, 0.25, 0});
  expect_values(made.result, {1, 1e4, 0, 0});
}

// The clip is compared with the norm of the mean over counted targets, not with what was summed.
TEST(UpdateScalars, ClipComparesTheCorrectedNorm) {
  EXPECT_NEAR(update(kRule, {1, 3, 0, 0.25}, 1).scalars[kGradientFactor], 4 / 2.000001, 1e-14);  // 0.5 · 12 / 3 = 2
  EXPECT_NEAR(update(kRule, {1, 12, 0, 0.25}, 1).scalars[kGradientFactor], 1, 1e-14);
}

TEST(UpdateScalars, AZeroGradientIsApplied) {
  const Update made = update(kRule, {12, 12, 0, 0}, 1);
  EXPECT_EQ(made.counters, (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(made.scalars[kGradientFactor], 1);
  EXPECT_EQ(made.result[kGradientNorm], 0);
}

void expect_skip(const std::vector<double>& sums, const std::string& why) {
  const Update made = update(kRule, sums, 2, {4, 1, 1});
  EXPECT_EQ(made.counters, (std::vector<double>{4, 2, 2})) << why;
  EXPECT_EQ(made.scalars[kSkip], 1) << why;
  EXPECT_EQ(made.scalars[kBiasCorrection1], 1 - 0.0625) << why;  // of the 4 that were applied
  EXPECT_EQ(made.result[kWasSkipped], 1) << why;
  EXPECT_EQ(made.result[kStop], 1) << why;
}

TEST(UpdateScalars, SkipsWhatCannotBeApplied) {
  const double infinity = std::numeric_limits<double>::infinity();
  expect_skip({0, 0, 1, 0, 0}, "no target");
  expect_skip({NAN, 12, 1, 1, 1}, "loss NaN");
  expect_skip({infinity, 12, 1, 1, 1}, "loss infinite");
  expect_skip({5, 12, 1, NAN, 1}, "first square NaN");
  expect_skip({5, 12, 1, 1, NAN}, "last square NaN");
  expect_skip({5, 12, 1, 1, infinity}, "square infinite");
  expect_skip({5, 12, 1, 1.5e308, 1.5e308}, "sum of squares overflows");
  EXPECT_EQ(update(kRule, {5, 12, 0, 1, 1, NAN}, 2).scalars[kSkip], 0) << "what is no square decides nothing";
}

// Second moments are squares in float32: infinite ones would stop their weights for ever.
TEST(UpdateScalars, SkipsWhatSecondMomentsCannotHold) {
  UpdateRule rule = kRule;
  rule.clip = 0;
  EXPECT_EQ(update(rule, {5, 12, 0, 3.2e38}, 1).scalars[kSkip], 0);
  EXPECT_EQ(update(rule, {5, 12, 0, 3.5e38}, 1).scalars[kSkip], 1);
  EXPECT_EQ(update(kRule, {5, 12, 0, 3.5e38}, 1).scalars[kSkip], 0) << "clipped before it is squared";
}

TEST(UpdateScalars, WithoutTargetsLossAndNormAreZero) {
  const Update made = update(kRule, {0, 0, 0, 0}, 1);
  expect_values(made.result, {0, 0, 1, 0});
  EXPECT_EQ(made.scalars[kGradientFactor], 0);
}

TEST(UpdateScalars, WrongCountsAreFaults) {
  expect_fault("4 sums cannot hold 2 squares", [] { update(kRule, {1, 2, 3, 4}, 2); });
  expect_fault("counters is [2], not [3]", [] { update(kRule, {1, 2, 3, 4}, 1, {0, 0}); });
}

}  // namespace
}  // namespace shiftron::kernel_testing
