// Files of a run: metrics are moved, never lost.
#include "run/run_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bytes_read.h"
#include "expect_error.h"
#include "scratch.h"
#include "small_disk.h"
#include "thread_room.h"

namespace shiftron {
namespace {

std::string line_of(int step) {
  return "{\"step\":" + std::to_string(step) + ",\"loss\":1.5}\n";
}

TEST(SupersedeMetrics, MovesLaterAndBrokenLines) {
  const Scratch scratch;
  scratch.write("metrics.jsonl", line_of(1) + line_of(2) + line_of(3) + "{\"step\":4,\"lo");
  supersede_metrics(scratch.path(), 2);
  EXPECT_EQ(Scratch::read(scratch / "metrics.jsonl"), line_of(1) + line_of(2));
  EXPECT_EQ(Scratch::read(scratch / "metrics.superseded.jsonl"), line_of(3) + "{\"step\":4,\"lo\n");
  supersede_metrics(scratch.path(), 0);
  EXPECT_EQ(Scratch::read(scratch / "metrics.jsonl"), "");
  EXPECT_EQ(Scratch::read(scratch / "metrics.superseded.jsonl"),
            line_of(3) + "{\"step\":4,\"lo\n" + line_of(1) + line_of(2));
}

TEST(SupersedeMetrics, IsDoneOnceWhereItWasKilledBetweenItsFiles) {
  const Scratch scratch;
  scratch.write("metrics.jsonl", line_of(1) + line_of(2) + line_of(3));
  scratch.write("metrics.superseded.jsonl", line_of(7) + line_of(2) + line_of(3));
  supersede_metrics(scratch.path(), 1);
  EXPECT_EQ(Scratch::read(scratch / "metrics.jsonl"), line_of(1));
  EXPECT_EQ(Scratch::read(scratch / "metrics.superseded.jsonl"), line_of(7) + line_of(2) + line_of(3));
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

TEST(SupersedeMetrics, BehindALineThatWasCut) {
  const Scratch scratch;
  scratch.write("metrics.jsonl", line_of(1) + line_of(2));
  scratch.write("metrics.superseded.jsonl", "{\"step\":7,");
  supersede_metrics(scratch.path(), 1);
  EXPECT_EQ(Scratch::read(scratch / "metrics.superseded.jsonl"), "{\"step\":7,\n" + line_of(2));
}

// Longer than the blocks that are read from the end.
std::string long_line_of(int step) {
  return "{\"step\":" + std::to_string(step) + ",\"tokens\":1,\"loss\":1,\"step_seconds\":1,\"shift\":\"" +
         std::string(100'000, 'x') + "\"}\n";
}

TEST(SupersedeMetrics, GoesOnWhereverItWasKilled) {
  const std::string before = line_of(1) + line_of(2), old = line_of(9);
  for (const std::string& end : {line_of(3) + line_of(4) + line_of(5), line_of(3) + "{\"step\":4,\"lo"}) {
    const std::string moved = end + (end.ends_with('\n') ? "" : "\n");
    for (size_t bytes = 0; bytes <= moved.size(); ++bytes) {
      const Scratch scratch;
      scratch.write("metrics.jsonl", before + (bytes == 0 ? end : moved));
      scratch.write("metrics.superseded.jsonl", old + moved.substr(0, bytes));
      supersede_metrics(scratch.path(), 2);
      EXPECT_EQ(Scratch::read(scratch / "metrics.jsonl"), before) << bytes;
      EXPECT_EQ(Scratch::read(scratch / "metrics.superseded.jsonl"), old + moved) << bytes;
    }
  }
}

TEST(SupersedeMetrics, GoesOnWithinALongEnd) {
  std::string moved;
  for (int step = 2; step <= 40; ++step) moved += long_line_of(step);
  for (const size_t bytes : {size_t{0}, size_t{70'000}, size_t{2'500'000}, moved.size()}) {
    const Scratch scratch;
    scratch.write("metrics.jsonl", long_line_of(1) + moved);
    scratch.write("metrics.superseded.jsonl", long_line_of(7) + moved.substr(0, bytes));
    supersede_metrics(scratch.path(), 1);
    EXPECT_EQ(Scratch::read(scratch / "metrics.jsonl"), long_line_of(1)) << bytes;
    EXPECT_EQ(Scratch::read(scratch / "metrics.superseded.jsonl"), long_line_of(7) + moved) << bytes;
  }
}

// As where its end does not match: another start's.
TEST(SupersedeMetrics, TakesNothingOfAnotherStartForItsOwn) {
  const Scratch scratch;
  const std::string others = line_of(2) + line_of(7);
  scratch.write("metrics.jsonl", line_of(1) + line_of(2) + line_of(3));
  scratch.write("metrics.superseded.jsonl", others);
  supersede_metrics(scratch.path(), 1);
  EXPECT_EQ(Scratch::read(scratch / "metrics.superseded.jsonl"), others + line_of(2) + line_of(3));
}

TEST(SupersedeMetrics, TellsWhatStaysOfTheStep) {
  const Scratch scratch;
  const std::string stays = line_of(1) + line_of(2) + "\n{\"step\":2,\"validation_loss\":1}\n";
  scratch.write("metrics.jsonl", stays + line_of(3) + "{\"step\":3,\"benchmarks\":{}}\n");
  for (const int times : {1, 2}) {
    const RowsOfStep rows = supersede_metrics(scratch.path(), 2);
    EXPECT_TRUE(rows.loss && rows.validation && !rows.benchmarks) << times;
    EXPECT_EQ(Scratch::read(scratch / "metrics.jsonl"), stays);
  }
}

TEST(SupersedeMetrics, ReadsOfALongRunItsEnd) {
  if (bytes_read() == 0) GTEST_SKIP() << "the system does not count what is read";
  const Scratch scratch;
  std::string before, moved;
  for (int step = 1; step <= 300; ++step) (step <= 290 ? before : moved) += long_line_of(step);
  scratch.write("metrics.jsonl", before + moved);
  const uint64_t so_far = bytes_read();
  supersede_metrics(scratch.path(), 290);
  EXPECT_LT(bytes_read() - so_far, 4 * moved.size());  // of 30 times as many
  EXPECT_EQ(Scratch::read(scratch / "metrics.jsonl"), before);
  EXPECT_EQ(Scratch::read(scratch / "metrics.superseded.jsonl"), moved);
}

TEST(JsonLines, BeginsALineBehindOneThatWasCut) {
  const Scratch scratch;
  for (const std::string cut : {"{\"step\":1,\"lo", "{\"step\":1}"}) {
    const std::string path = scratch.write("metrics.jsonl", cut);
    JsonLines lines(path);
    lines.write({{"step", 2}});
    lines.write({{"step", 3}});
    EXPECT_EQ(Scratch::read(path), cut + "\n{\"step\":2}\n{\"step\":3}\n");
  }
}

TEST(Events, BeginALineBehindOneThatWasCut) {
  const Scratch scratch;
  const Events events(scratch.path(), 0);
  scratch.write("events.jsonl", R"({"event":"start","host":"elsewhere","process":1})"
                                "\n{\"time\":\"2026-01-01T00:0");
  EXPECT_TRUE(events.another_process_started());
  events.write("start", {{"process", ::getpid()}});
  EXPECT_FALSE(events.another_process_started()) << Scratch::read(scratch / "events.jsonl");
  int starts = 0;
  for_each_json_line(scratch / "events.jsonl", [&](const nlohmann::json& line) { starts += line.contains("process"); });
  EXPECT_EQ(starts, 2);
}

TEST(Events, SkipDamagedLines) {
  const Scratch scratch;
  const Events events(scratch.path(), 1);
  const std::string damaged =
      "{\"event\":5}\n" + std::string(3, '\0') + "\n\xff\n[1]\n{\"event\":\"start\",\"host\":[]}\n";
  scratch.write("events.jsonl", damaged + R"({"event":"start","host":"elsewhere","process":1})" + "\n");
  EXPECT_TRUE(events.another_process_started());
  scratch.write("events.jsonl", damaged + R"({"event":"exit","rank":0,"error":"no room"})" + "\n");
  EXPECT_FALSE(events.write_failure(70, "no room"));
  EXPECT_TRUE(events.write_failure(70, "another"));
}

TEST(OpenRun, RefusesWhatCannotBeARunsDirectory) {
  const Scratch scratch;
  Log log;
  for (const char* name : {"config.conf", "metrics.jsonl", "events.jsonl"}) {
    std::filesystem::create_directories(scratch / "run/" + name);
    EXPECT_ERROR(open_run(scratch / "run", log), ExitCode::bad_input,
                 scratch / "run/" + name + " is a directory, but the run needs a regular file there; move it away");
    std::filesystem::remove(scratch / "run/" + name);
  }
  for (const char* name : {"config.conf", "metrics.jsonl", "metrics.superseded.jsonl", "events.jsonl"}) {
    ASSERT_EQ(::mkfifo((scratch / "run/" + name).c_str(), 0600), 0);  // opening it waits for a reader
    EXPECT_ERROR(open_run(scratch / "run", log), ExitCode::bad_input,
                 scratch / "run/" + name +
                     " is a pipe, a socket or a device, but the run needs a regular file there; move it away");
    std::filesystem::remove(scratch / "run/" + name);
  }
  std::filesystem::create_directories(scratch / "run/logs");
  ASSERT_EQ(::mkfifo((scratch / "run/logs/rank-00000.log").c_str(), 0600), 0);
  const int reader = ::open((scratch / "run/logs/rank-00000.log").c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_ERROR(add_log_file(scratch / "run", log), ExitCode::bad_input, "rank-00000.log: it is a pipe; move it away");
  ::close(reader);
  std::filesystem::create_symlink("missing", scratch / "link");
  for (const char* name : {"link", "link/"}) {
    EXPECT_ERROR(
        open_run(scratch / name, log), ExitCode::bad_input,
        std::string(name) + " is a symbolic link to missing, which does not exist; mount or create that directory");
  }
  std::filesystem::create_directory_symlink("missing", scratch / "run/checkpoints");
  EXPECT_ERROR(open_run(scratch / "run", log), ExitCode::bad_input,
               "run/checkpoints is a symbolic link to missing, which does not exist; mount or create that directory");
  EXPECT_FALSE(std::filesystem::exists(scratch / "missing"));
  std::filesystem::create_directories(scratch / "other");
  scratch.write("other/checkpoints", "");
  EXPECT_ERROR(open_run(scratch / "other", log), ExitCode::bad_input,
               "other/checkpoints is not a directory, but the run keeps its checkpoints there; move it away");
}

TEST(OpenRun, AThreadThatIsMissingIsNoFaultOfTheDirectory) {
  const Scratch scratch;
  EXPECT_EXIT(
      {
        Log log;
        leave_room_for_threads(0);
        try {
          open_run(scratch.path(), log);
        } catch (const Error& error) {
          std::fprintf(stderr, "[%s]\n", error.what());
          _exit(static_cast<int>(error.code()));
        }
      },
      ::testing::ExitedWithCode(76), "\\[cannot start a thread");
}

}  // namespace
}  // namespace shiftron
