// The warning of a resumed run with another train.steps.
#include "run/resume.h"

#include <gtest/gtest.h>

#include "scratch.h"

namespace shiftron {
namespace {

// Whether a run of 8 steps that continues at first_step as one of `steps` is warned.
bool is_warned(LearningRateSchedule schedule, int64_t decay_steps, int64_t steps, int64_t first_step) {
  const Scratch scratch;
  RunConfig saved;
  saved.train.steps = 8;
  saved.optimizer.schedule = schedule;
  saved.optimizer.decay_steps = decay_steps;
  saved.optimizer.learning_rate = 1;
  RunConfig config = saved;
  config.train.steps = steps;
  {
    Log log;
    log.add_file(scratch / "log");
    warn_of_changed_schedule(saved, config, first_step, log);
  }
  return Scratch::read(scratch / "log").find("depends on the end of the run") != std::string::npos;
}

TEST(ChangedSchedule, IsReportedIfTheRateDependsOnTheEnd) {
  using enum LearningRateSchedule;
  EXPECT_TRUE(is_warned(cosine, 0, 12, 5));
  EXPECT_FALSE(is_warned(cosine, 0, 8, 5));
  EXPECT_FALSE(is_warned(linear, 3, 12, 5));  // falls after warmup, wherever the end is
  EXPECT_TRUE(is_warned(wsd, 0, 12, 5));      // falls during the last fifth
  EXPECT_FALSE(is_warned(wsd, 1, 12, 7));
  EXPECT_TRUE(is_warned(wsd, 1, 12, 8));
}

}  // namespace
}  // namespace shiftron
