// When a run in an allocation stops.
#include "train/time_limit.h"

#include <gtest/gtest.h>

namespace shiftron {
namespace {

using std::chrono::seconds;
using Time = TimeLimit::Clock::time_point;

const Time kNow{seconds(1000)};

TEST(TimeLimit, NoneIsNeverUp) {
  TimeLimit limit;
  limit.add_step(1e9);
  EXPECT_FALSE(limit.is_up(kNow, {.save = true, .evaluation = true}));
}

TEST(TimeLimit, LeavesRoomForThreeStepsAndASave) {
  TimeLimit limit(kNow + seconds(60), 10.0);
  EXPECT_FALSE(limit.is_up(kNow, {}));
  limit.add_step(15);
  EXPECT_FALSE(limit.is_up(kNow, {}));  // 3 * 15 + 10 + 5 = 60
  EXPECT_TRUE(limit.is_up(kNow + seconds(1), {}));
  limit.add_step(16);
  EXPECT_TRUE(limit.is_up(kNow, {}));
}

TEST(TimeLimit, TheLongestCounts) {
  TimeLimit limit(kNow + seconds(100), std::nullopt);
  EXPECT_DOUBLE_EQ(limit.needed({}), TimeLimit::kUnknownSave + TimeLimit::kMargin);
  limit.add_save(4);
  limit.add_save(2);
  limit.add_step(3);
  limit.add_step(1);
  EXPECT_DOUBLE_EQ(limit.needed({}), 9 + 4 + TimeLimit::kMargin);
  limit.add_evaluation(20);
  EXPECT_DOUBLE_EQ(limit.needed({.evaluation = true}), 9 + 4 + 20 + TimeLimit::kMargin);
  EXPECT_DOUBLE_EQ(limit.needed({.save = true}), 9 + 2 * 4 + TimeLimit::kMargin);
  EXPECT_DOUBLE_EQ(limit.needed({}), 9 + 4 + TimeLimit::kMargin);
}

TEST(TimeLimit, AnEarlierStartsSaveIsKnown) {
  TimeLimit limit(kNow + seconds(100), 90.0);
  EXPECT_FALSE(limit.is_up(kNow, {}));
  EXPECT_TRUE(limit.is_up(kNow + seconds(6), {}));
}

}  // namespace
}  // namespace shiftron
