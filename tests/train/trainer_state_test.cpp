// What a trainer reports about itself between two steps.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "train/small_model.h"

namespace shiftron::testing {
namespace {

TEST(TrainerState, IsNotToldBeforeTheResultOfTheLastStepIsRead) {
  const RunConfig config = small_config({});
  const auto world = make_single_world();
  RankTrainer rank(config, *world);
  const SampleReader samples = random_samples(config.train.sequence_length, config.model.vocab);
  for (const int64_t step : {1, 2}) {
    rank.trainer->step(step, rank.reader(step, samples), false);
    const std::string number = std::to_string(step);
    EXPECT_ERROR((void)rank.trainer->state(), ExitCode::crash, "step " + number + " is still running");
    rank.trainer->result(step);
    EXPECT_EQ(rank.trainer->state(), (TrainerState{.applied_updates = step}));
  }
}

// Also for a step that is reported after the next one.
TEST(TrainerState, TimeCountsFromTheFirstStepToTheEndOfTheOneThatIsTold) {
  const RunConfig config = small_config({});
  const auto world = make_single_world();
  RankTrainer rank(config, *world);
  const SampleReader samples = random_samples(config.train.sequence_length, config.model.vocab);
  for (const int64_t step : {7, 8}) rank.trainer->step(step, rank.reader(step, samples), false);
  const StepResult first = rank.trainer->result(7), second = rank.trainer->result(8);
  EXPECT_EQ(first.elapsed, first.seconds);
  EXPECT_GE(second.elapsed, first.seconds + second.seconds);
}

}  // namespace
}  // namespace shiftron::testing
