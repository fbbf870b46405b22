// Progress: silent when short, rate limited, time left.
#include "core/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace shiftron {
namespace {

struct Stage {
  std::ostringstream stream;
  double now = 100;
  Progress::Output output(bool terminal) {
    return {&stream, terminal, [this] { return now; }};
  }
  long lines() const {
    const std::string text = stream.str();
    return std::count(text.begin(), text.end(), '\n');
  }
};

TEST(Progress, ShortWorkIsSilent) {
  Stage stage;
  {
    Progress progress("work", 10, "items", stage.output(false));
    for (int i = 1; i <= 10; ++i) {
      stage.now += 0.19;
      progress.update(static_cast<uint64_t>(i));
    }
  }
  EXPECT_EQ(stage.stream.str(), "");
}

TEST(Progress, PlainLinesComeEveryFiveSeconds) {
  Stage stage;
  Progress progress("work", 400, "items", stage.output(false));
  for (int i = 1; i <= 160; ++i) {
    stage.now += 0.125;
    progress.update(static_cast<uint64_t>(i));
  }
  EXPECT_EQ(stage.lines(), 4);  // after 2, 7, 12 and 17 of 20 seconds
  EXPECT_THAT(stage.stream.str(), ::testing::HasSubstr("work: 16 items of 400 items (4 %), 8 items/s, 48 s left"));
  progress.finish();
  EXPECT_EQ(stage.lines(), 5);
  EXPECT_THAT(stage.stream.str(), ::testing::EndsWith("20 s in all\n"));
}

TEST(Progress, TheFirstOfFewItemsTellsTheTimeLeft) {
  Stage stage;
  Progress progress("work", 4, "items", stage.output(false));
  stage.now += 10;
  progress.update(1);
  EXPECT_THAT(stage.stream.str(), ::testing::HasSubstr("30 s left"));
}

TEST(Progress, TerminalLineIsRewritten) {
  Stage stage;
  Progress progress("work", 3000000, "bytes", stage.output(true));
  for (int i = 1; i <= 24; ++i) {
    stage.now += 0.125;
    progress.update(static_cast<uint64_t>(i) * 125000);
  }
  EXPECT_EQ(stage.lines(), 0);
  EXPECT_THAT(stage.stream.str(), ::testing::StartsWith("\rwork: 2.0 MB of 3.0 MB"));
  progress.finish();
  EXPECT_EQ(stage.lines(), 1);
}

}  // namespace
}  // namespace shiftron
