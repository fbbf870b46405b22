// The state of runs, from their files.
#include "run/run_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bytes_read.h"
#include "checkpoint/fixture.h"
#include "core/check.h"
#include "core/directory_lock.h"

namespace shiftron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using State = RunStatus::State;

constexpr double kEpoch = 1'767'225'600;  // 2026-01-01T00:00:00Z

RunStatus read_run_status(const std::string& directory, std::optional<int64_t> steps, double now) {
  return RunStatusReader(directory).read(steps, now);
}

class Status : public ::testing::Test {
 protected:
  // A line of events.jsonl at `minute`; `rest`: further fields.
  void event(int minute, const std::string& name, const std::string& rest = "") {
    char time[40];
    std::snprintf(time, sizeof time, "2026-01-01T%02d:%02d:00.500Z", minute / 60, minute % 60);
    std::ofstream(path("events.jsonl"), std::ios::app)
        << R"({"time":")" << time << R"(","event":")" << name << '"' << rest << "}\n";
  }
  void row(const std::string& file, int step, double seconds, double loss) {
    std::ofstream(path(file), std::ios::app) << R"({"step":)" << step << R"(,"tokens":)" << step * 100 << R"(,"loss":)"
                                             << loss << R"(,"step_seconds":)" << seconds << "}\n";
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  RunStatus read(int minute) const { return read_run_status(directory_.path(), 100, kEpoch + minute * 60 + 0.5); }
  shiftron::testing::TemporaryDirectory directory_;
};

// Gives the run a lock that somebody holds; seconds since 1970 of its sign of life.
double touched_lock(const std::string& directory) {
  std::filesystem::create_directories(directory + "/.lock");
  std::ofstream(directory + "/.lock/1") << "me";
  const auto touched = std::filesystem::last_write_time(directory + "/.lock/1");
  return std::chrono::duration<double>(std::chrono::file_clock::to_sys(touched).time_since_epoch()).count();
}

const char* const kStart = R"(,"hosts":{"a":2,"b":2})";

TEST_F(Status, WhatIsNoRunIsRefused) {
  const auto read_it = [&] { read(0); };
  try {
    read_it();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("not a run's directory"));
  }
}

TEST_F(Status, LifeOfAJob) {
  event(0, "queued", R"(,"job":"17")");
  RunStatus status = read(5);
  EXPECT_EQ(status.state, State::queued);
  EXPECT_EQ(status.job, "17");
  EXPECT_DOUBLE_EQ(status.since, 300);
  event(10, "start", kStart);
  std::filesystem::create_directories(path(".lock"));
  EXPECT_EQ(read(10).state, State::silent);  // nobody touches the lock
  const double now = touched_lock(directory_.path());
  EXPECT_EQ(read_run_status(directory_.path(), 100, now + 20).state, State::running);
  EXPECT_EQ(read_run_status(directory_.path(), 100, now + 120).state, State::silent);
  const pid_t child = ::fork();
  if (child == 0) {
    new DirectoryLock(directory_.path(), "", {}, {.touch = 1, .patience = 0});  // takes it over from "me"
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  const RunStatus killed = read_run_status(directory_.path(), 100, now + 1);
  EXPECT_EQ(killed.state, State::silent) << "of this host's dead one knows at once";
  EXPECT_LT(killed.since, 60);
  event(20, "checkpoint", R"(,"step":5,"seconds":30)");
  event(20, "exit", R"(,"rank":0,"code":75)");
  EXPECT_EQ(read(21).state, State::saved);
  event(20, "requeue", R"(,"job":"17","why":"saved and stopped")");
  status = read(25);
  EXPECT_EQ(status.state, State::queued);
  EXPECT_EQ(status.why, "saved and stopped");
  EXPECT_DOUBLE_EQ(status.between_seconds, 300);
  event(30, "start", kStart);
  event(40, "exit", R"(,"rank":0,"code":0)");
  status = read(1000);
  EXPECT_EQ(status.state, State::done);
  EXPECT_EQ(status.starts, 2);
  EXPECT_DOUBLE_EQ(status.wall_seconds, 30 * 60);
  EXPECT_DOUBLE_EQ(status.between_seconds, 10 * 60);
  EXPECT_DOUBLE_EQ(status.save_seconds, 30);
}

TEST_F(Status, AJobThatLooksAtItsHostsIsStarting) {
  event(0, "queued", R"(,"job":"17")");
  event(4, "job", R"(,"job":"17","nodes":"node[1-2]")");
  RunStatus status = read(5);
  EXPECT_EQ(to_json(status).at("state"), "starting");
  EXPECT_DOUBLE_EQ(status.since, 60);
  EXPECT_THAT(to_text(status, 80), HasSubstr("starting for 1:00, job 17 on node[1-2]\n"));
  event(6, "start", kStart);
  event(8, "exit", R"(,"code":70)");
  event(8, "requeue", R"(,"job":"17","why":"crash")");
  EXPECT_EQ(read(9).state, State::queued);
  event(10, "job", R"(,"job":"17")");
  status = read(11);
  EXPECT_EQ(status.state, State::starting);
  EXPECT_EQ(status.why, "");
  EXPECT_DOUBLE_EQ(status.between_seconds, 3 * 60);
  event(12, "left", R"(,"job":"17","code":76)");
  EXPECT_EQ(read(13).state, State::failed);
  event(14, "job", R"(,"job":"18")");  // submitted by hand
  EXPECT_EQ(read(15).state, State::starting);
  event(16, "queued", R"(,"job":"19")");  // 18 was killed
  EXPECT_EQ(read(17).state, State::queued);
}

TEST_F(Status, ASaveThatFailedIsToldUntilOneSucceeds) {
  event(0, "start", kStart);
  event(1, "checkpoint_failed", R"(,"step":1200,"reason":"no space on the disk")");
  EXPECT_THAT(to_text(read(2), 80), HasSubstr("step 1,200 could not be saved: no space on the disk"));
  EXPECT_EQ(to_json(read(2)).at("save_fault"), "step 1,200 could not be saved: no space on the disk");
  event(3, "checkpoint", R"(,"step":1300,"seconds":2)");
  EXPECT_EQ(to_json(read(4)).at("save_fault"), "");
}

TEST_F(Status, TheFirstRankThatFailsSaysWhy) {
  event(0, "start", kStart);
  event(5, "exit", R"(,"rank":3,"code":70,"error":"disk on fire")");
  event(6, "exit", R"(,"rank":0,"code":71)");
  RunStatus status = read(10);
  EXPECT_EQ(status.state, State::failed);
  EXPECT_EQ(status.code, 70);
  EXPECT_THAT(to_text(status, 80), HasSubstr("code 70: disk on fire"));
  event(7, "exit", R"(,"job":"17","code":93,"error":"crashed 3 times")");  // of the job script: the last word
  status = read(10);
  EXPECT_EQ(status.code, 93);
  EXPECT_EQ(status.why, "crashed 3 times");
}

TEST_F(Status, ARunThatIsDoneStaysSoWhereAStartIsRefused) {
  event(0, "start", kStart);
  event(10, "exit", R"(,"code":0)");
  event(20, "start", kStart);
  event(21, "exit", R"(,"rank":1,"code":76,"error":"another learning rate")");
  event(21, "exit", R"(,"rank":0,"code":76,"error":"another learning rate")");
  RunStatus status = read(30);
  EXPECT_EQ(status.state, State::done);
  EXPECT_EQ(status.code, 0);
  EXPECT_DOUBLE_EQ(status.since, 20 * 60);
  const std::string told = "a later start failed at 2026-01-01T00:21:00.500Z: another learning rate";
  EXPECT_EQ(to_json(status).at("start_fault"), told);
  EXPECT_THAT(to_text(status, 80), ::testing::StartsWith("done for 20:00\n"));
  EXPECT_THAT(to_text(status, 80), HasSubstr("\n" + told + "\n"));
  event(22, "queued", R"(,"job":"17")");
  event(23, "job", R"(,"job":"17")");
  event(24, "left", R"(,"job":"17","code":76)");
  status = read(30);
  EXPECT_EQ(status.state, State::done);
  EXPECT_THAT(status.start_fault, HasSubstr("00:24:00.500Z: invalid configuration or data, see the job's log"));
  EXPECT_DOUBLE_EQ(status.between_seconds, 0);
  event(30, "start", kStart);
  EXPECT_EQ(to_json(read(30)).at("start_fault"), "");
  event(30, "resume", R"(,"step":100)");
  event(40, "exit", R"(,"rank":0,"code":76,"error":"nothing to learn from")");
  status = read(50);
  EXPECT_EQ(status.state, State::failed) << "a run that resumed";
  EXPECT_EQ(status.why, "nothing to learn from");
  event(50, "start", kStart);
  event(50, "resume", R"(,"step":100)");
  event(60, "exit", R"(,"code":0)");
  event(60, "start", kStart);
  event(60, "resume", R"(,"step":100)");  // to be longer, and killed
  event(70, "start", kStart);
  event(71, "exit", R"(,"rank":0,"code":76)");
  EXPECT_EQ(read(80).state, State::failed) << "a run that was not done any more";
}

TEST_F(Status, AStartThatIsRefusedIsTheLastWordOfARunThatWasNotDone) {
  event(0, "start", kStart);
  event(5, "checkpoint", R"(,"step":5,"seconds":30)");
  event(10, "exit", R"(,"code":75)");
  event(20, "start", kStart);
  event(21, "exit", R"(,"rank":0,"code":76,"error":"another learning rate")");
  EXPECT_EQ(read(22).state, State::failed);
  EXPECT_EQ(read(22).why, "another learning rate");
  EXPECT_EQ(read(22).start_fault, "");
}

// Nobody wanted it to run.
TEST_F(Status, NothingIsLostBehindTheEndOfARunOrOfAStartThatWasRefused) {
  event(0, "start", kStart);
  event(10, "exit", R"(,"code":0)");
  event(70, "start", kStart);
  event(70, "resume", R"(,"step":100)");
  RunStatus status = read(80);
  EXPECT_DOUBLE_EQ(status.between_seconds, 0);
  EXPECT_DOUBLE_EQ(status.wall_seconds, 20 * 60);
  EXPECT_THAT(to_text(status, 80), HasSubstr("20:00 of run time, 2 starts"));
  event(80, "exit", R"(,"code":70)");
  event(85, "start", kStart);
  event(86, "exit", R"(,"rank":0,"code":76)");
  event(96, "queued", R"(,"job":"17")");
  EXPECT_DOUBLE_EQ(read(100).between_seconds, 5 * 60);
  EXPECT_DOUBLE_EQ(read(100).wall_seconds, 26 * 60);
  event(100, "start", kStart);
  status = read(110);
  EXPECT_DOUBLE_EQ(status.between_seconds, 5 * 60) << "after the crash";
  EXPECT_DOUBLE_EQ(status.wall_seconds, (20 + 5 + 1 + 10) * 60);
}

TEST_F(Status, AJobThatNeverCameToTheProgram) {
  event(0, "queued", R"(,"job":"17")");
  event(1, "job", R"(,"job":"17")");
  event(1, "left", R"(,"job":"17","code":76)");
  EXPECT_EQ(read(2).state, State::failed);
  EXPECT_THAT(to_text(read(2), 80), HasSubstr("invalid configuration or data"));
}

TEST_F(Status, AJobThatSlurmDoesNotBringBack) {
  event(0, "start", kStart);
  event(1, "exit", R"(,"code":75)");
  event(2, "requeue", R"(,"job":"17","why":"saved and stopped")");
  event(3, "left", R"(,"job":"17","code":75)");
  EXPECT_EQ(read(4).state, State::saved);
  EXPECT_THAT(to_text(read(4), 80), HasSubstr("stopped and not requeued, see the job's log"));
}

TEST_F(Status, JobsThatCameMeanwhileChangeNothing) {
  event(0, "queued", R"(,"job":"8")");
  event(1, "job", R"(,"job":"8")");
  event(2, "start", kStart);
  const double now = touched_lock(directory_.path());
  event(3, "job", R"(,"job":"9")");
  EXPECT_EQ(read_run_status(directory_.path(), 100, now + 20).job, "8");
  event(4, "left", R"(,"job":"9","code":76)");
  event(5, "queued", R"(,"job":"10")");
  RunStatus status = read_run_status(directory_.path(), 100, now + 20);
  EXPECT_EQ(status.state, State::running);
  EXPECT_EQ(status.job, "8");
  event(6, "job", R"(,"job":"10")");
  event(6, "left", R"(,"job":"10","code":76)");
  status = read_run_status(directory_.path(), 100, now + 20);
  EXPECT_EQ(status.state, State::running);
  EXPECT_EQ(status.job, "8");
  EXPECT_EQ(status.code, 0);
  EXPECT_EQ(status.why, "");
  EXPECT_NE(read_run_status(directory_.path(), 100, now + 120).state, State::running) << "its lock is dead";
  event(7, "exit", R"(,"rank":0,"code":75)");
  EXPECT_EQ(read(8).job, "8");
  event(7, "requeue", R"(,"job":"8","why":"saved and stopped")");
  status = read(8);
  EXPECT_EQ(status.state, State::queued);
  EXPECT_EQ(status.job, "8");
  event(9, "start", kStart);  // by hand
  EXPECT_EQ(read_run_status(directory_.path(), 100, now + 20).job, "");
}

TEST_F(Status, FilesThatCannotBeReadAreAnError) {
  std::ofstream(path("config.conf")) << "";
  for (const mode_t kind : {S_IFSOCK, S_IFIFO}) {  // is there, and cannot be opened; or not without a writer
    ASSERT_EQ(::mknod(path("events.jsonl").c_str(), kind | 0600, 0), 0);
    ASSERT_THROW(read(0), Error);
    std::filesystem::remove(path("events.jsonl"));
  }
}

TEST_F(Status, AnArrayNamesItsRuns) {
  std::filesystem::create_directories(path("seed-4"));
  std::filesystem::create_directories(path("seed-3"));
  const auto read_it = [&] { read(0); };
  try {
    read_it();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/seed-3"));
  }
}

TEST_F(Status, CodesAndClocksThatCannotBe) {
  event(0, "start", kStart);
  event(5, "exit", R"(,"code":"x")");
  EXPECT_EQ(read(6).state, State::failed);
  event(2, "start", kStart);  // on a host whose clock is late
  event(7, "exit", R"(,"code":1e300)");
  const RunStatus status = read(8);
  EXPECT_EQ(status.state, State::failed);
  EXPECT_EQ(status.between_seconds, 0);
}

TEST_F(Status, StepsThatCountAndStepsMadeAgain) {
  event(0, "start", kStart);
  for (int step = 1; step <= 40; ++step) row("metrics.jsonl", step, step == 40 ? 9 : 3, 5.0 - step * 0.1);
  row("metrics.superseded.jsonl", 41, 30, 1);
  std::ofstream(path("metrics.jsonl"), std::ios::app) << "{\"step\":1e300,\"step_seconds\":1}\n"
                                                         "{\"step\":-4,\"step_seconds\":1}\n";
  std::ofstream(path("metrics.jsonl"), std::ios::app)
      << R"({"step":40,"validation_loss":1.25,"validation_accuracy":0.75})"
         "\n"
         R"({"step":41,"tok)";
  event(10, "exit", R"(,"code":0)");
  const RunStatus status = read(10);
  EXPECT_EQ(status.step, 40);
  EXPECT_DOUBLE_EQ(status.step_seconds, 39 * 3 + 9);
  EXPECT_DOUBLE_EQ(status.repeated_seconds, 30);
  EXPECT_DOUBLE_EQ(status.lost_share(), 30 / 600.0);
  EXPECT_DOUBLE_EQ(*status.seconds_left, 60 * 3);  // by the median of the last steps
  EXPECT_NEAR(status.tokens_per_second, 100 / 3.0, 1e-9);
  EXPECT_NEAR(status.loss, 5 - 0.1 * 30.5, 1e-9);
  EXPECT_DOUBLE_EQ(*status.validation_loss, 1.25);
  EXPECT_DOUBLE_EQ(*status.validation_accuracy, 0.75);
  EXPECT_TRUE(std::isnan(status.accuracy));  // rows of older versions have none
  const std::string text = to_text(status, 40);
  EXPECT_THAT(text, HasSubstr("step 40 of 100"));
  EXPECT_THAT(text, HasSubstr("5.0 % lost to restarts"));
  EXPECT_THAT(text, HasSubstr("4.9000 |*"));  // the first of 29 columns is one step
  EXPECT_EQ(to_json(status).at("state"), "done");
}

TEST_F(Status, AccuracyIsShownNextToTheLoss) {
  event(0, "start", kStart);
  for (int step = 1; step <= 2; ++step) {
    std::ofstream(path("metrics.jsonl"), std::ios::app) << nlohmann::json{{"step", step},
                                                                          {"tokens", 100 * step},
                                                                          {"loss", 2},
                                                                          {"accuracy", 0.25 * step},
                                                                          {"step_seconds", 1}}
                                                        << "\n";
  }
  std::ofstream(path("metrics.jsonl"), std::ios::app) << R"({"step":2,"validation_loss":3,"validation_accuracy":0.125})"
                                                      << "\n";
  const RunStatus status = read(10);
  EXPECT_DOUBLE_EQ(status.accuracy, 0.375);  // over the last steps, as the loss
  EXPECT_THAT(to_text(status, 40), HasSubstr("loss 2.0000, accuracy 0.375, held-out loss 3.0000 (accuracy 0.125), "));
  EXPECT_EQ(to_json(status).at("accuracy"), 0.375);
  EXPECT_EQ(to_json(status).at("validation_accuracy"), 0.125);
}

TEST_F(Status, AnotherLookReadsWhatHasCome) {
  if (bytes_read() == 0) GTEST_SKIP() << "the system does not count what is read";
  event(0, "start", kStart);
  std::ofstream(path("metrics.jsonl")) << std::string(4 << 20, ' ') << "\n";
  row("metrics.jsonl", 1, 5, 2.5);
  RunStatusReader reader(directory_.path());
  EXPECT_EQ(reader.read(100, kEpoch).step, 1);
  const uint64_t before = bytes_read();
  row("metrics.jsonl", 2, 7, 1.5);
  std::ofstream(path("metrics.jsonl"), std::ios::app) << R"({"step":3,"tok)";
  const RunStatus second = reader.read(100, kEpoch);
  EXPECT_LT(bytes_read() - before, 64 << 10);
  EXPECT_EQ(second.step, 2);
  EXPECT_DOUBLE_EQ(second.step_seconds, 12);
  EXPECT_DOUBLE_EQ(second.loss, 2);
  std::ofstream(path("metrics.jsonl"), std::ios::app) << R"(ens":300,"loss":0.5,"step_seconds":9})"
                                                      << "\n";
  EXPECT_EQ(reader.read(100, kEpoch).losses, (std::vector{2.5, 1.5, 0.5}));
  EXPECT_LT(bytes_read() - before, 128 << 10);
}

// Training has resumed from an older step, or somebody has put another file there.
TEST_F(Status, ALookSeesThatMetricsWereCut) {
  event(0, "start", kStart);
  RunStatusReader reader(directory_.path());
  const auto losses = [&](int first, std::initializer_list<int> seconds) {
    std::filesystem::remove(path("metrics.jsonl"));
    int step = first;
    for (const int of : seconds) row("metrics.jsonl", step, of, step), ++step;
    const RunStatus status = reader.read(100, kEpoch), anew = read(0);
    EXPECT_EQ(status.losses, anew.losses);
    EXPECT_EQ(status.step_seconds, anew.step_seconds);
    EXPECT_EQ(status.repeated_seconds, anew.repeated_seconds);
    EXPECT_EQ(to_json(status).at("tokens_per_second"), to_json(anew).at("tokens_per_second"));
    return status.losses;
  };
  row("metrics.superseded.jsonl", 3, 30, 1);
  EXPECT_EQ(losses(1, {1, 2, 3}), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(losses(1, {1, 2}), (std::vector<double>{1, 2}));
  row("metrics.superseded.jsonl", 3, 40, 1);
  EXPECT_EQ(losses(1, {1, 7, 8, 9}), (std::vector<double>{1, 2, 3, 4})) << "longer than before";
  EXPECT_EQ(losses(5, {1, 7, 8, 9}), (std::vector<double>{5, 6, 7, 8}));
  std::filesystem::remove(path("metrics.superseded.jsonl"));
  EXPECT_EQ(losses(1, {}), std::vector<double>{});
  EXPECT_EQ(losses(1, {4}), std::vector<double>{1});
}

// Its loss is null.
TEST_F(Status, ASkippedStepHidesNoLossOfTheOthers) {
  event(0, "start", kStart);
  const auto skipped = [&](int step) {
    std::ofstream(path("metrics.jsonl"), std::ios::app)
        << R"({"step":)" << step << R"(,"tokens":)" << step * 100 << R"(,"loss":null,"step_seconds":3})"
        << "\n";
  };
  skipped(1);
  EXPECT_TRUE(std::isnan(read(1).loss));
  for (int step = 2; step <= 5; ++step) row("metrics.jsonl", step, 3, step);
  skipped(6);
  const RunStatus status = read(1);
  EXPECT_EQ(status.step, 6);
  EXPECT_DOUBLE_EQ(status.loss, (2 + 3 + 4 + 5) / 4.0);
  EXPECT_THAT(to_text(status, 40), HasSubstr("step 6 of 100, loss 3.5000"));
  EXPECT_EQ(to_json(status).at("steps"), 100);
  RunStatus unknown = read_run_status(directory_.path(), std::nullopt, kEpoch);
  unknown.steps_fault = "not known";
  EXPECT_THAT(to_text(unknown, 40), HasSubstr("step 6, loss 3.5000"));
  EXPECT_THAT(to_text(unknown, 40), HasSubstr("\nnot known\n"));
  EXPECT_TRUE(to_json(unknown).at("steps").is_null());
  EXPECT_FALSE(unknown.seconds_left);
}

}  // namespace
}  // namespace shiftron
