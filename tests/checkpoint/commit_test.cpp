// The commit protocol: kill -9 at every point, failures of single ranks, full disks.
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "checkpoint/fixture.h"
#include "checkpoint/verify.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ParallelLayout kCommitWriter{.tp = 2, .dp = 2};
const ParallelLayout kCommitReader{.pp = 2};

// The step that the next start finds; its data must be that step's.
int64_t found_step(const std::string& directory) {
  int64_t wrong = 0;
  const int64_t step = load_state(directory, kSmallModel, kCommitReader, salt_of_step, &wrong);
  EXPECT_EQ(wrong, 0) << "step " << step << " is mixed";
  return step;
}

TEST(Commit, KillAtEveryPointLeavesTheOldOrTheNewStep) {
  const Retention keep{.keep = 1, .keep_every = 0};  // so that the removal of the old step is walked through too
  std::mutex mutex;
  std::vector<std::string> points;
  {
    const TemporaryDirectory directory;
    ASSERT_TRUE(save_state(directory.path(), kSmallModel, kCommitWriter, 10, 10, keep).saved);
    ASSERT_TRUE(save_state(directory.path(), kSmallModel, kCommitWriter, 20, 20, keep,
                           hooked(small_blocks(),
                                  [&](int, const std::string& point) {
                                    const std::lock_guard lock(mutex);
                                    points.push_back(point);
                                  }))
                    .saved);
    EXPECT_THAT(names_in(directory.path()), ElementsAre("step-00000020"));
  }
  EXPECT_GE(std::set<std::string>(points.begin(), points.end()).size(), 17u);
  const auto first_after = std::find(points.begin(), points.end(), "step renamed") - points.begin();
  for (int killed_at = 0; killed_at < static_cast<int>(points.size()); ++killed_at) {
    const TemporaryDirectory directory;
    ASSERT_TRUE(save_state(directory.path(), kSmallModel, kCommitWriter, 10, 10, keep).saved);
    const pid_t child = ::fork();
    if (child == 0) {
      save_state(directory.path(), kSmallModel, kCommitWriter, 20, 20, keep,
                 hooked(small_blocks(), [&](int number, const std::string&) {
                   if (number == killed_at) std::raise(SIGKILL);
                 }));
      ::_exit(3);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    const std::string place = "killed at " + std::to_string(killed_at) + ", " + points[static_cast<size_t>(killed_at)];
    EXPECT_EQ(found_step(directory.path()), killed_at < first_after ? 10 : 20) << place;
    // What is left does not harm the next save.
    EXPECT_TRUE(save_state(directory.path(), kSmallModel, kCommitWriter, 30, 30, keep).saved) << place;
    EXPECT_EQ(found_step(directory.path()), 30) << place;
    for (const std::string& name : names_in(directory.path())) EXPECT_EQ(name.rfind("step-", 0), 0u) << place << name;
  }
}

// An exception at any point of any rank: all ranks tell the same failure, nothing is left, the old step stays.
TEST(Commit, WhoLosesTheDirectoryBeforeTheLastRenameSavesNothing) {
  const TemporaryDirectory place;
  SaveOptions options;
  options.before_commit = [] { throw_crash("taken over"); };
  const SaveResult result = save_state(place.path(), kSmallModel, {}, 1, 1, {}, options);
  EXPECT_FALSE(result.saved);
  EXPECT_NE(result.reason.find("taken over"), std::string::npos);
  EXPECT_TRUE(list_steps(place.path()).empty());
}

TEST(Commit, AFailureAtAnyPointFailsTheSaveOnAllRanks) {
  int tried = 0;
  for (int failing_at = 0; tried == failing_at; ++failing_at) {
    const TemporaryDirectory directory;
    ASSERT_TRUE(save_state(directory.path(), kSmallModel, kCommitWriter, 10, 10).saved);
    bool committed = false;
    std::string failed_point;
    const SaveResult result = save_state(directory.path(), kSmallModel, kCommitWriter, 20, 20, {.keep = 5},
                                         hooked(small_blocks(), [&](int number, const std::string& point) {
                                           if (number != failing_at) return;
                                           ++tried;
                                           failed_point = point;
                                           committed = point == "committed";
                                           throw_crash("disk on fire, \xff");
                                         }));
    if (tried == failing_at) break;  // after the last point
    EXPECT_FALSE(result.saved) << failed_point;
    EXPECT_THAT(result.reason, HasSubstr("disk on fire"));
    EXPECT_EQ(found_step(directory.path()), committed ? 20 : 10) << failed_point;
    if (!committed) {
      EXPECT_THAT(names_in(directory.path()), ElementsAre("step-00000010")) << failed_point;
    }
  }
  EXPECT_GT(tried, 20);
}

TEST(Commit, TemporaryDirectoriesAreIgnoredAndSwept) {
  const TemporaryDirectory directory;
  fs::create_directories(directory.path() + "/step-00000090.tmp");
  write_text(directory.path() + "/step-00000090.tmp/rank-00000.h5", "unfinished");
  fs::create_directories(directory.path() + "/trash-step-00000001");
  fs::create_directories(directory.path() + "/step-mine.tmp");
  EXPECT_EQ(found_step(directory.path()), -1);
  ASSERT_TRUE(save_state(directory.path(), kSmallModel, kCommitWriter, 10, 10).saved);
  EXPECT_THAT(names_in(directory.path()), ElementsAre("step-00000010", "step-mine.tmp"));
}

TEST(Commit, AValidStepIsNeverOverwrittenABrokenOneIsSetAside) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(save_state(directory.path(), kSmallModel, kCommitWriter, 10, 10).saved);
  const SaveResult again = save_state(directory.path(), kSmallModel, kCommitWriter, 10, 11);
  EXPECT_FALSE(again.saved);
  EXPECT_THAT(again.reason, HasSubstr("step-00000010 already exists and is valid"));
  EXPECT_EQ(found_step(directory.path()), 10);
  fs::remove(directory.path() + "/step-00000010/manifest.json");
  EXPECT_TRUE(save_state(directory.path(), kSmallModel, kCommitWriter, 10, 10).saved);
  EXPECT_EQ(found_step(directory.path()), 10);
  EXPECT_THAT(names_in(directory.path()), ElementsAre("broken-step-00000010", "step-00000010"));
}

TEST(Commit, WhatTheDiskGivesBackIsComparedWithMemory) {
  const TemporaryDirectory directory;
  SaveOptions options = small_blocks();
  options.at_point = [&](const std::string& point) {
    if (point != "file synced") return;
    const std::string path = directory.path() + "/step-00000010.tmp/rank-00000.h5";
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<int64_t>(fs::file_size(path)) - 8);
    file.put('\x55');
  };
  const SaveResult result = save_state(directory.path(), kSmallModel, {}, 10, 10, {}, options);
  EXPECT_FALSE(result.saved);
  EXPECT_THAT(result.reason, HasSubstr("does not read back as written"));
}

// As where hosts have a directory of that name each.
TEST(Commit, AFileThatRank0DoesNotSeeIsNoneOfTheStep) {
  const TemporaryDirectory directory;
  SaveOptions options = small_blocks();
  options.at_point = [&](const std::string& point) {
    const std::string file = directory.path() + "/step-00000010.tmp/rank-00001.h5";
    if (point == "reports gathered") fs::remove(file);
  };
  const SaveResult result = save_state(directory.path(), kSmallModel, kCommitWriter, 10, 10, {}, options);
  EXPECT_FALSE(result.saved);
  EXPECT_THAT(result.reason, HasSubstr("rank-00001.h5"));
  EXPECT_THAT(result.reason, HasSubstr("put it on a file system that they share"));
  EXPECT_THAT(names_in(directory.path()), ElementsAre());
}

TEST(Commit, AManifestThatNobodyWouldReadIsNotWritten) {
  const TemporaryDirectory directory;
  run_thread_ranks(1, [&](HostCommunicator& world) {
    Ledger ledger;
    Log log;
    const ParameterSet set = make_set(kSmallModel, {}, 0, ledger);
    CheckpointContent content = content_at(10);
    content.configuration = std::string(kLargestManifest, 'x');
    const SaveResult result = save_checkpoint(directory.path(), content, set, world, {}, log, small_blocks());
    EXPECT_FALSE(result.saved);
    EXPECT_THAT(result.reason, HasSubstr("raise parallel.bucket_elements"));
  });
  EXPECT_THAT(names_in(directory.path()), ElementsAre());
}

TEST(Commit, AParameterThatNoRankWritesIsFound) {
  const TemporaryDirectory directory;
  run_thread_ranks(2, [&](HostCommunicator& world) {
    Ledger ledger;
    Log log(world.rank());
    // Both ranks say that they are the second of two: what the first one owns is missing.
    const ParameterSet set = make_set(kSmallModel, {.tp = 2}, 1, ledger);
    const SaveResult result = save_checkpoint(directory.path(), content_at(10), set, world, {}, log, small_blocks());
    EXPECT_FALSE(result.saved);
    EXPECT_THAT(result.reason, HasSubstr("parameters/"));
  });
  EXPECT_THAT(names_in(directory.path()), ElementsAre());
}

TEST(Commit, BlocksHoldWholeElements) {
  const TemporaryDirectory directory;
  Ledger ledger;
  Log log;
  const ParameterSet set = make_set(kSmallModel, {}, 0, ledger);
  const auto world = make_single_world();
  SaveOptions options;
  options.block_bytes = 514;
  EXPECT_THROW(save_checkpoint(directory.path(), content_at(1), set, *world, {}, log, options), Error);
}

TEST(Commit, OnMetaNothingIsWritten) {
  const TemporaryDirectory directory;
  Ledger ledger;
  Log log;
  ParameterSet set({}, {}, {DType::float32, DType::float32});
  declare(set, kSmallModel);
  set.allocate(Stream{.device = DeviceKind::meta, .ledger = &ledger}, true);
  const auto world = make_meta_world(0, 1);
  EXPECT_TRUE(save_checkpoint(directory.path() + "/new", content_at(1), set, *world, {}, log).saved);
  EXPECT_FALSE(fs::exists(directory.path() + "/new"));
}

// A disk of `bytes`, if this process may mount one.
class SmallDisk {
 public:
  explicit SmallDisk(int64_t bytes) {
    mounted_ = ::mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(directory_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const std::string& path() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
  bool mounted_ = false;
};

// So that `left` bytes are free.
void fill_disk(const SmallDisk& disk, uint64_t left) {
  fs::remove(disk.path() + "/filler");
  write_text(disk.path() + "/filler", std::string(free_disk_space(disk.path()) - left, 'x'));
}

TEST(Commit, FullDiskFailsTheSaveAndHurtsNothing) {
  const SmallDisk disk(4 << 20);
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a tmpfs (needs root)";
  const std::string directory = disk.path() + "/checkpoints";
  ASSERT_TRUE(save_state(directory, kSmallModel, kCommitWriter, 10, 10).saved);

  // Too little space is seen before anything is written.
  fill_disk(disk, 100 << 10);
  const SaveResult refused = save_state(directory, kSmallModel, kCommitWriter, 20, 20);
  EXPECT_FALSE(refused.saved);
  EXPECT_THAT(refused.reason, HasSubstr("the disk of " + directory));
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000010"));
  fs::remove(disk.path() + "/filler");

  // The disk fills up while ranks write, at any point up to the manifest.
  for (const std::string full_at : {"directory made", "file created", "half written", "reports gathered"}) {
    SaveOptions options = small_blocks();
    std::once_flag once;
    options.at_point = [&](const std::string& point) {
      if (point != full_at) return;
      std::call_once(once, [&] {
        std::ofstream filler(disk.path() + "/filler", std::ios::binary);
        const std::string piece(1 << 12, 'x');
        while (filler.write(piece.data(), static_cast<std::streamsize>(piece.size())).flush()) {
        }
      });
    };
    const SaveResult result = save_state(directory, kSmallModel, kCommitWriter, 20, 20, {}, options);
    EXPECT_FALSE(result.saved) << full_at;
    EXPECT_THAT(result.reason, HasSubstr(disk.path())) << full_at;
    EXPECT_EQ(found_step(directory), 10) << full_at;
    EXPECT_THAT(names_in(directory), ElementsAre("step-00000010")) << full_at;
    fs::remove(disk.path() + "/filler");
  }
  EXPECT_TRUE(save_state(directory, kSmallModel, kCommitWriter, 20, 20).saved);
  EXPECT_EQ(found_step(directory), 20);
}

TEST(Commit, StepsThatKeepDoesNotNameMakeRoom) {
  const SmallDisk disk(4 << 20);
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a tmpfs (needs root)";
  const std::string directory = disk.path() + "/checkpoints";
  for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(save_state(directory, kSmallModel, kCommitWriter, step, 10).saved);
  fill_disk(disk, 100 << 10);
  const Retention all{.keep = 1, .keep_every = 10};
  EXPECT_FALSE(save_state(directory, kSmallModel, kCommitWriter, 40, 40, all).saved);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000010", "step-00000020", "step-00000030"));
  EXPECT_TRUE(save_state(directory, kSmallModel, kCommitWriter, 40, 40, {.keep = 1}).saved);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000040"));
}

// A disk of `keep` steps, not of one more: else a run would save no step any more.
TEST(Commit, TheOldestStepGoesBeforeTheNextWhereTheDiskHoldsNoMore) {
  const SmallDisk disk(4 << 20);
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a tmpfs (needs root)";
  const std::string directory = disk.path() + "/checkpoints";
  uint64_t bytes = 0;
  for (const int64_t step : {10, 20, 30}) {
    const SaveResult saved = save_state(directory, kSmallModel, kCommitWriter, step, salt_of_step(step));
    ASSERT_TRUE(saved.saved);
    bytes = saved.bytes;
  }
  fill_disk(disk, bytes * 9 / 10);
  for (const int64_t step : {40, 50}) {
    std::vector<std::string> there;  // when the old step is gone
    SaveOptions options = small_blocks();
    options.at_point = [&](const std::string& point) {
      if (point == "old step removed") there = names_in(directory);
    };
    EXPECT_TRUE(
        save_state(directory, kSmallModel, kCommitWriter, step, salt_of_step(step), {.keep = 3}, options).saved);
    EXPECT_THAT(there, ElementsAre(step_name(step - 20), step_name(step - 10)));
    EXPECT_THAT(names_in(directory), ElementsAre(step_name(step - 20), step_name(step - 10), step_name(step)));
    EXPECT_EQ(found_step(directory), step);
  }
}

TEST(Commit, NoStepGoesInVain) {
  const SmallDisk disk(4 << 20);
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a tmpfs (needs root)";
  const std::string directory = disk.path() + "/checkpoints";
  for (const int64_t step : {10, 20}) ASSERT_TRUE(save_state(directory, kSmallModel, kCommitWriter, step, step).saved);
  fill_disk(disk, 0);
  EXPECT_FALSE(save_state(directory, kSmallModel, kCommitWriter, 30, 30, {.keep = 2}).saved);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000010", "step-00000020"));
}

// A peer that continued would wait at the next step's deadline for a file system that removes slowly.
TEST(Commit, NoRankGoesOnBeforeOldStepsAreRemoved) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(save_state(directory.path(), kSmallModel, kCommitWriter, 10, 10).saved);
  std::atomic<int> gone_on = 0;
  run_thread_ranks(kCommitWriter.ranks(), [&](HostCommunicator& world) {
    Ledger ledger;
    Log log(world.rank());
    const ParameterSet set = make_set(kSmallModel, kCommitWriter, world.rank(), ledger);
    fill(kSmallModel, set, 20);
    SaveOptions options = small_blocks();
    bool told = false;
    options.committed = [&] { told = true; };
    options.at_point = [&](const std::string& point) {
      if (point != "old step renamed") return;
      EXPECT_TRUE(told);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_EQ(gone_on, 0);
    };
    EXPECT_TRUE(save_checkpoint(directory.path(), content_at(20), set, world, {.keep = 1}, log, options).saved);
    EXPECT_TRUE(told);
    ++gone_on;
  });
  EXPECT_THAT(names_in(directory.path()), ElementsAre("step-00000020"));
}

// Counts the bytes of what is said.
class CountingPlane : public ControlPlane {
 public:
  CountingPlane(ControlPlane& plane, std::atomic<size_t>& bytes)
      : RankGroup(plane.name(), plane.rank(), plane.size()), plane_(plane), bytes_(bytes) {}
  void barrier() override { plane_.barrier(); }
  std::string broadcast_text(const std::string& text, int root) override {
    if (rank() == root) bytes_ += text.size();
    return plane_.broadcast_text(text, root);
  }
  std::vector<std::string> gather_text(const std::string& text, int root) override {
    bytes_ += text.size();
    return plane_.gather_text(text, root);
  }

 private:
  ControlPlane& plane_;
  std::atomic<size_t>& bytes_;
};

// All that rank 0 parses, all wait for: of many ranks the lists of what each holds were most of it.
TEST(Commit, RanksThatHoldTheSameSayItOnce) {
  std::map<int, std::atomic<size_t>> saving, loading;  // bytes, by ranks
  for (const int ranks : {1, 8}) {
    saving[ranks] = loading[ranks] = 0;
    const TemporaryDirectory directory;
    const FakeModel model;
    run_thread_ranks(ranks, [&, dp = ranks](HostCommunicator& world) {
      Ledger ledger;
      Log log(world.rank());
      ParameterSet set = make_set(model, {.dp = dp}, world.rank(), ledger);
      CountingPlane save_plane(world, saving.at(dp)), load_plane(world, loading.at(dp));
      EXPECT_TRUE(save_checkpoint(directory.path(), content_at(1), set, save_plane, {}, log, small_blocks()).saved);
      EXPECT_TRUE(load_checkpoint(directory.path(), {}, set, load_plane, log));
    });
  }
  EXPECT_LT(saving[8], 1.5 * static_cast<double>(saving[1]));
  EXPECT_LT(loading[8], 1.5 * static_cast<double>(loading[1]));
}

// Of what one of them alone writes too: each parameter is written by the same one in both.
TEST(Commit, RanksThatHoldDifferentModelsAreTold) {
  const TemporaryDirectory directory;
  const ParallelLayout layout{.dp = 2};
  ASSERT_TRUE(save_state(directory.path(), kSmallModel, layout, 10, 10).saved);
  run_thread_ranks(layout.ranks(), [&](HostCommunicator& world) {
    Ledger ledger;
    Log log(world.rank());
    FakeModel model = kSmallModel;
    if (world.rank() == 1) model.heads /= 2, model.kv_heads /= 2, model.head_dim *= 2;
    ParameterSet set = make_set(model, layout, world.rank(), ledger);
    const auto disagreement = HasSubstr("ranks disagree about parameters/layers.0.attention.query.weight: [");
    const SaveResult result = save_checkpoint(directory.path(), content_at(20), set, world, {}, log, small_blocks());
    EXPECT_FALSE(result.saved);
    EXPECT_THAT(result.reason, disagreement);
    EXPECT_THAT(error_of([&] { load_checkpoint(directory.path(), {}, set, world, log); }).what(), disagreement);
  });
  EXPECT_THAT(names_in(directory.path()), ElementsAre("step-00000010"));
}

}  // namespace
}  // namespace shiftron
