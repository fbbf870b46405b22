// What pruning removes from a run, and what it never removes.
#include "run/prune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/save.h"
#include "config/config_text.h"
#include "core/directory_lock.h"
#include "expect_error.h"
#include "scratch.h"
#include "small_disk.h"
#include "train/small_model.h"
#include "without_rights.h"

namespace shiftron::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Prune : public ::testing::Test {
 protected:
  void save(int64_t step, const CheckpointSection& checkpoint) {
    RunConfig config = small_config({}, Precision::fp32);
    config.checkpoint = checkpoint;
    const auto world = make_single_world();
    RankTrainer rank(config, *world);
    Log log;
    const CheckpointContent content{.step = step,
                                    .configuration = to_config_text(config),
                                    .state_json = R"({"configuration":)" + to_json(config) + R"(,"trainer":{}})",
                                    .tokenizer = {},
                                    .data_fingerprint = "",
                                    .code_version = "test"};
    const SaveResult saved = save_checkpoint(run_ + "/checkpoints", content, rank.trainer->engine().parameters(),
                                             *world, {.keep = 1000}, log);
    ASSERT_TRUE(saved.saved) << saved.reason;
  }
  std::string path(int64_t step) const { return run_ + "/checkpoints/" + step_name(step); }
  // A bit of a tensor: the fast check does not see it.
  void damage(int64_t step) {
    const Manifest manifest = check_step(path(step));
    std::fstream stream(path(step) + "/" + manifest.files[0].name, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<int64_t>(manifest.boxes[0].byte_offset));
    stream.put('\x7f');
  }
  std::vector<int64_t> there() const {
    std::vector<int64_t> steps;
    for (const StepDirectory& entry : list_steps(run_ + "/checkpoints")) steps.push_back(entry.step);
    return steps;
  }
  static std::vector<int64_t> steps_of(const Pruning& pruning) {
    std::vector<int64_t> steps;
    for (const SuperfluousStep& entry : pruning.steps) steps.push_back(entry.step.step);
    return steps;
  }
  Scratch scratch_;
  std::string run_ = scratch_.path() + "/run";
};

TEST_F(Prune, TheRunsOwnRule) {
  for (const int64_t step : {10, 20, 30, 40, 50}) save(step, {.keep = 2, .keep_every = 20});
  const Pruning planned = plan_pruning(run_, {}, {});
  EXPECT_THAT(steps_of(planned), ElementsAre(30, 10));
  EXPECT_EQ(planned.steps[0].bytes, check_step(path(30)).bytes());
  EXPECT_THAT(there(), ElementsAre(50, 40, 30, 20, 10)) << "a plan removes nothing";
  EXPECT_THAT(steps_of(prune(run_, {}, {})), ElementsAre(30, 10));
  EXPECT_THAT(there(), ElementsAre(50, 40, 20));
  EXPECT_THAT(steps_of(prune(run_, {}, {})), IsEmpty());
}

TEST_F(Prune, ItsPromisesStayUnlessOthersAreGiven) {
  save(10, {.keep = 2, .keep_every = 10});
  for (const int64_t step : {20, 30}) save(step, {.keep = 2});
  EXPECT_THAT(steps_of(plan_pruning(run_, 1, {})), ElementsAre(20)) << "10 was to stay";
  EXPECT_THAT(steps_of(plan_pruning(run_, 1, 0)), ElementsAre(20, 10));
  EXPECT_THAT(steps_of(plan_pruning(run_, 1, 20)), ElementsAre(10));
}

TEST_F(Prune, TheNewestWholeStepStays) {
  for (const int64_t step : {10, 20, 30}) save(step, {.keep = 1});
  damage(30);
  EXPECT_THAT(steps_of(prune(run_, 1, {})), ElementsAre(10));
  EXPECT_THAT(there(), ElementsAre(30, 20));
  damage(20);
  EXPECT_ERROR(prune(run_, 1, {}), ExitCode::no_checkpoint, "nothing is removed");
  EXPECT_THAT(there(), ElementsAre(30, 20));
}

TEST_F(Prune, WhereARunIsAliveNothingGoes) {
  for (const int64_t step : {10, 20, 30}) save(step, {.keep = 1});
  const DirectoryLock lock(run_, "", [](const std::string&) {});
  EXPECT_ERROR(prune(run_, 1, {}), ExitCode::bad_input, "wait for it, or stop it");
  EXPECT_THAT(there(), ElementsAre(30, 20, 10));
  EXPECT_THAT(steps_of(plan_pruning(run_, 1, {})), ElementsAre(20, 10)) << "a plan may be asked for at any time";
}

TEST_F(Prune, WhatWasInterruptedGoesToo) {
  for (const int64_t step : {10, 20, 30}) save(step, {.keep = 2});
  const std::string trash = set_aside(path(10), "trash-"), begun = path(40) + ".tmp",
                    kept = set_aside(path(20), "broken-");
  fs::create_directories(begun + "/deeper");
  std::ofstream(begun + "/deeper/file") << "12345";
  const Pruning planned = plan_pruning(run_, {}, {});
  ASSERT_EQ(planned.leftovers.size(), 2u);
  EXPECT_EQ(planned.leftovers[0].path, begun);
  EXPECT_EQ(planned.leftovers[0].bytes, 5u);
  EXPECT_EQ(planned.leftovers[1].path, trash);
  EXPECT_GT(planned.leftovers[1].bytes, check_step(path(30)).bytes());
  EXPECT_TRUE(fs::exists(trash)) << "a plan removes nothing";
  EXPECT_THAT(steps_of(prune(run_, {}, {})), IsEmpty());
  EXPECT_FALSE(fs::exists(trash));
  EXPECT_FALSE(fs::exists(begun));
  EXPECT_TRUE(fs::exists(kept));
  EXPECT_TRUE(prune(run_, {}, {}).leftovers.empty());
}

// One that belongs to somebody else stays; it keeps nothing else.
TEST_F(Prune, WhatCannotBeRemovedIsToldWhenTheRestIsGone) {
  for (const int64_t step : {10, 20, 30}) save(step, {.keep = 1});
  const std::string trash = set_aside(path(10), "trash-");
  open_to_all(trash, false);
  for (const std::string& place : {scratch_.path(), run_, run_ + "/checkpoints", path(20), path(30)}) {
    open_to_all(place, true);
  }
  {
    const WithoutRights somebody;
    ASSERT_TRUE(somebody.holds());
    EXPECT_ERROR(prune(run_, {}, {}), ExitCode::crash, "everything else was removed");
    EXPECT_ERROR(prune(run_, {}, {}), ExitCode::crash, trash);
  }
  EXPECT_TRUE(fs::exists(trash));
  EXPECT_THAT(there(), ElementsAre(30));
}

// While the newest step is read, which takes minutes, a run takes the directory over and begins a save.
TEST_F(Prune, WhatAnotherBeganMeanwhileStays) {
  for (const int64_t step : {10, 20, 30}) save(step, {.keep = 1});
  const std::string begun = path(40) + ".tmp", holder = run_ + "/.lock/2";
  fs::create_directories(begun);
  const auto take_over = [&](uint64_t, uint64_t) {
    fs::remove(run_ + "/.lock/1");
    std::ofstream(holder) << "process 1 on elsewhere";
  };
  EXPECT_ERROR(prune(run_, 1, {}, take_over), ExitCode::crash, "another process has taken over this run");
  EXPECT_TRUE(fs::exists(begun));
  EXPECT_THAT(there(), ElementsAre(30, 20, 10));
}

// It is the way out of it.
TEST_F(Prune, OnAFullDisk) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
  run_ = disk / "run";
  for (const int64_t step : {10, 20, 30}) save(step, {.keep = 1});
  const auto fill = [&](const char* name) { std::ofstream(disk / name) << std::string(2 << 20, 'x'); };
  fs::create_directories(path(40) + ".tmp");
  {
    const DirectoryLock lock(run_, "", [](const std::string&) {});
    fill("filler");
    EXPECT_ERROR(prune(run_, 1, {}), ExitCode::bad_input, "wait for it, or stop it");
  }
  fill("more");
  const auto lock = [&] { DirectoryLock(run_, "", [](const std::string&) {}); };
  EXPECT_THROW(lock(), NoSpaceForLock);
  EXPECT_THROW(prune(run_, 3, {}), NoSpaceForLock) << "an empty leftover makes no room";
  fs::remove(disk / "more");
  fs::create_directories(path(50) + ".tmp");
  std::ofstream(path(50) + ".tmp/rank-00000.h5") << "all that was written";
  fill("rest");
  EXPECT_THROW(lock(), NoSpaceForLock);
  const Pruning swept = prune(run_, 3, {});
  EXPECT_TRUE(swept.steps.empty());
  uint64_t bytes = 0;
  for (const Leftover& left : swept.leftovers) bytes += left.bytes;
  EXPECT_EQ(swept.leftovers.size(), 2u);
  EXPECT_EQ(bytes, 20u);
  fill("room");
  EXPECT_THROW(lock(), NoSpaceForLock);
  int times = 0;  // that the newest step was read, which may take minutes
  const Pruning pruned = prune(run_, 1, {}, [&](uint64_t done, uint64_t of) { times += done == of; });
  EXPECT_EQ(times, 1);
  EXPECT_THAT(steps_of(pruned), ElementsAre(20, 10));
  EXPECT_THAT(there(), ElementsAre(30));
  fill("again");
  EXPECT_THROW(lock(), NoSpaceForLock);
  EXPECT_TRUE(prune(run_, 1, {}).steps.empty()) << "needs no lock";
}

// After the first look another step has appeared under the number of the one that was read.
TEST_F(Prune, OnAFullDiskAnotherNewestStepIsRead) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
  run_ = disk / "run";
  save(30, {.keep = 7});
  fs::rename(path(30), disk / "another");
  for (const int64_t step : {20, 30}) save(step, {.keep = 1});
  fs::create_directories(path(50) + ".tmp");
  std::ofstream(path(50) + ".tmp/rank-00000.h5") << "all that was written";
  { std::ofstream(disk / "filler") << std::string(2 << 20, 'x'); }
  int times = 0;
  const Pruning pruned = prune(run_, 1, {}, [&](uint64_t done, uint64_t of) {
    if (done != of || ++times > 1) return;
    fs::rename(path(30), disk / "first");
    fs::rename(disk / "another", path(30));
  });
  EXPECT_THAT(steps_of(pruned), ElementsAre(20));
  EXPECT_EQ(times, 2);
}

TEST_F(Prune, WhatIsNoRun) {
  EXPECT_ERROR(plan_pruning(run_, {}, {}), ExitCode::bad_input, "is not a run");
  fs::create_directories(run_ + "/checkpoints");
  EXPECT_ERROR(plan_pruning(run_, {}, {}), ExitCode::bad_input, "contains no valid step");
}

}  // namespace
}  // namespace shiftron::testing
