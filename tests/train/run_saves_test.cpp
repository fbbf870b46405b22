// What a run knows of its saves.
#include "train/run_saves.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "checkpoint/fixture.h"
#include "run/saved_state.h"
#include "train/training_harness.h"

namespace shiftron::testing {
namespace {

RunConfig saving_run(const std::string& directory) {
  RunConfig config;
  config.output.directory = directory;
  config.train.steps = 25;
  config.checkpoint.every = 10;
  config.checkpoint.keep = 1;
  return config;
}

TEST(RunSaves, WantsEveryTenthTheStopAndTheLastStep) {
  run_thread_ranks(1, [](HostCommunicator& world) {
    TemporaryDirectory directory;
    RunConfig config = saving_run(directory.path());
    config.train.stop_at = 13;
    Log log;
    Events events;
    Watchdog watchdog([](const Watchdog::Expiry&) {});
    std::unique_ptr<DirectoryLock> lock;
    const RunEnvironment environment{.world = world, .log = log, .events = events, .watchdog = watchdog, .lock = lock};
    const RunSaves saves(config, environment);
    std::vector<int64_t> wanted;
    for (int64_t step = 1; step <= 25; ++step) {
      if (saves.is_wanted_after(step)) wanted.push_back(step);
    }
    EXPECT_EQ(wanted, (std::vector<int64_t>{10, 13, 20, 25}));
  });
}

TEST(RunSaves, AFailedSaveIsKnownUntilOneSucceeds) {
  run_thread_ranks(2, [](HostCommunicator& world) {
    static TemporaryDirectory directory;  // of both ranks
    const RunConfig config = saving_run(directory.path());
    Log log(world.rank());
    Events events;
    Watchdog watchdog([](const Watchdog::Expiry&) {});
    std::unique_ptr<DirectoryLock> lock;
    const RunEnvironment environment{.world = world, .log = log, .events = events, .watchdog = watchdog, .lock = lock};
    RunSaves saves(config, environment);
    EXPECT_EQ(saves.unsaved_steps(), "all steps");
    RunConfig small;
    small.model = {.layers = 1, .hidden = 8, .heads = 2, .kv_heads = 2, .head_dim = 4, .ffn = 8, .vocab = 11};
    small.train = {.steps = 1, .global_batch = 2, .micro_batch = 1, .sequence_length = 4};
    RankTrainer rank(small, world);
    const ParameterSet& parameters = rank.trainer->engine().parameters();
    CheckpointContent content;
    SavedState state;
    state.configuration = config;
    content.state_json = to_json(state);
    const auto save = [&](int64_t step, SaveOptions save_options = {}) {
      content.step = step;
      return saves.save(content, parameters, false, std::move(save_options)).saved;
    };
    EXPECT_TRUE(save(10));
    EXPECT_EQ(saves.newest(), 10);
    SaveOptions failing;
    failing.before_commit = [] { throw_crash("no room"); };
    EXPECT_FALSE(save(20, std::move(failing)));
    EXPECT_TRUE(saves.last_failed());
    EXPECT_EQ(saves.unsaved_steps(), "everything after step 10");
    world.barrier();
    EXPECT_TRUE(std::filesystem::exists(saves.directory() + "/step-00000010")) << "a failed save removes nothing";
    world.barrier();
    EXPECT_TRUE(save(20));
    EXPECT_FALSE(saves.last_failed());
    EXPECT_EQ(saves.unsaved_steps(), "everything after step 20");
    world.barrier();
    EXPECT_FALSE(std::filesystem::exists(saves.directory() + "/step-00000010")) << "checkpoint.keep=1";
  });
}

}  // namespace
}  // namespace shiftron::testing
