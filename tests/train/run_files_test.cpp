// Files of a run: metrics are moved, never lost.
#include "train/run_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "expect_error.h"
#include "scratch.h"
#include "small_disk.h"

namespace shiftron {
namespace {

std::string line_of(int step) { return "{\"step\":" + std::to_string(step) + ",\"loss\":1.5}\n"; }

TEST(SupersedeMetrics, MovesLaterAndBrokenLines) {
  const Scratch scratch;
  scratch.write("metrics.jsonl", line_of(1) + line_of(2) + line_of(3) + "{\"step\":4,\"lo");
  supersede_metrics(scratch.path(), 2);
  EXPECT_EQ(Scratch::read(scratch / "metrics.jsonl"), line_of(1) + line_of(2));
  EXPECT_EQ(Scratch::read(scratch / "metrics.superseded.jsonl"), line_of(3) + "{\"step\":4,\"lo\n");
  supersede_metrics(scratch.path(), 0);
  EXPECT_EQ(Scratch::read(scratch / "metrics.jsonl"), "");
  EXPECT_EQ(Scratch::read(scratch / "metrics.superseded.jsonl"), line_of(3) + "{\"step\":4,\"lo\n" + line_of(1) + line_of(2));
}

TEST(SupersedeMetrics, ChangesNothingOnAFullDisk) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
  std::string text;
  for (int step = 1; step <= 200; ++step) text += line_of(step);
  { std::ofstream(disk / "metrics.jsonl") << text; }
  { std::ofstream(disk / "filler") << std::string(2 << 20, 'x'); }  // what fits of it
  for (const int64_t step : {0, 100}) {
    EXPECT_ERROR(supersede_metrics(disk.path(), step), ExitCode::crash, "No space left");
    EXPECT_EQ(Scratch::read(disk / "metrics.jsonl"), text);
    EXPECT_EQ(Scratch::read(disk / "metrics.superseded.jsonl"), "");
  }
}

}  // namespace
}  // namespace shiftron
