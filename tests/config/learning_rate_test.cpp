// Learning rates against numbers computed by hand.
#include "config/learning_rate.h"

#include <gtest/gtest.h>

namespace shiftron {
namespace {

OptimizerSection with(LearningRateSchedule schedule, int64_t warmup, int64_t decay_steps = 0,
                      double final_fraction = 0) {
  OptimizerSection optimizer;
  optimizer.learning_rate = 0.4;
  optimizer.schedule = schedule;
  optimizer.warmup = warmup;
  optimizer.decay_steps = decay_steps;
  optimizer.final_fraction = final_fraction;
  return optimizer;
}

TEST(LearningRate, WarmsUpFromTheFirstStep) {
  for (const auto schedule : {LearningRateSchedule::constant, LearningRateSchedule::cosine,
                              LearningRateSchedule::linear, LearningRateSchedule::wsd}) {
    const OptimizerSection optimizer = with(schedule, 4);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 1), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 3), 0.3);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 4), 0.4);
  }
}

TEST(LearningRate, Constant) {
  EXPECT_DOUBLE_EQ(learning_rate(with(LearningRateSchedule::constant, 0), 10, 1), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(with(LearningRateSchedule::constant, 0, 5, 0.5), 10, 10), 0.4);
}

TEST(LearningRate, LinearToTheLastStep) {
  const OptimizerSection optimizer = with(LearningRateSchedule::linear, 2, 0, 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 10, 2), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 10, 4), 0.4 * (0.25 + 0.75 * 0.75));
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 10, 6), 0.4 * 0.625);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 10, 10), 0.1);
}

TEST(LearningRate, LinearStaysAtItsEnd) {
  const OptimizerSection optimizer = with(LearningRateSchedule::linear, 0, 4, 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 10, 2), 0.3);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 10, 4), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 10, 9), 0.2);
}

TEST(LearningRate, Cosine) {
  const OptimizerSection optimizer = with(LearningRateSchedule::cosine, 2, 12, 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 6), 0.4 * (0.1 + 0.9 * 0.75));   // cos 60 degrees = 1/2
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 8), 0.4 * (0.1 + 0.9 * 0.5));    // cos 90 degrees = 0
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 10), 0.4 * (0.1 + 0.9 * 0.25));  // cos 120 degrees = -1/2
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 14), 0.04);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 99), 0.04);
  EXPECT_NEAR(learning_rate(with(LearningRateSchedule::cosine, 0), 50, 50), 0, 1e-16);
}

TEST(LearningRate, WsdHoldsThenFallsAsOneMinusRoot) {
  const OptimizerSection optimizer = with(LearningRateSchedule::wsd, 10, 16);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 50), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 84), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 85), 0.3);  // 1 - sqrt(1 / 16)
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 88), 0.2);  // 1 - sqrt(4 / 16)
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 93), 0.1);  // 1 - sqrt(9 / 16)
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 100), 0);
  EXPECT_DOUBLE_EQ(learning_rate(with(LearningRateSchedule::wsd, 10, 16, 0.5), 100, 88), 0.3);
}

TEST(LearningRate, WsdFallsOverAFifthByItself) {
  const OptimizerSection optimizer = with(LearningRateSchedule::wsd, 0);
  EXPECT_EQ(effective_decay_steps(optimizer, 100), 20);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 80), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 100, 85), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 3, 3), 0.4);  // a fifth of 3 steps is none
}

TEST(LearningRate, DecayStepsOfEachSchedule) {
  EXPECT_EQ(effective_decay_steps(with(LearningRateSchedule::constant, 5, 7), 100), 0);
  EXPECT_EQ(effective_decay_steps(with(LearningRateSchedule::cosine, 5), 100), 95);
  EXPECT_EQ(effective_decay_steps(with(LearningRateSchedule::cosine, 5, 7), 100), 7);
  EXPECT_EQ(effective_decay_steps(with(LearningRateSchedule::cosine, 100), 100), 0);
  EXPECT_DOUBLE_EQ(learning_rate(with(LearningRateSchedule::cosine, 100), 100, 100), 0.4);
}

}  // namespace
}  // namespace shiftron
