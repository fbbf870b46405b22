// A run that does not fit on a device is refused by all ranks, with what would fit.
#include "train/device_memory.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/small_model.h"

namespace shiftron::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Ledger plan_of(const RunConfig& config, const ParallelLayout& layout, int rank) {
  Ledger planned;
  plan_memory(config, layout, rank, 1, planned);
  return planned;
}

RunConfig config_of(const ParallelSection& parallel) {
  RunConfig config = small_config(all_shifts()[1].shift, Precision::fp32);
  config.device.kind = DeviceChoice::cuda;
  config.parallel = parallel;
  return config;
}

struct Refusal {
  std::string text;  // of the first rank
  int refused = 0;   // ranks
  ExitCode code = ExitCode::done;
};

// `room` gives what each rank's device has, from what is planned there.
template <typename Room>
Refusal ask_of(const RunConfig& config, int ranks, const Room& room) {
  const ParallelLayout layout = make_layout(config.parallel, ranks);
  Refusal refusal;
  std::mutex mutex;
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    const Ledger planned = plan_of(config, layout, world.rank());
    try {
      require_memory_for_plan(world, config, layout, 1, planned, room(world.rank(), planned.memory_total()));
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(refusal.refused++ == 0 || error.code() == refusal.code);
      refusal.code = error.code();
      if (world.rank() == 0) refusal.text = error.what();
    }
  });
  return refusal;
}

// All of which is free.
template <typename Bytes>
Refusal ask(const RunConfig& config, int ranks, const Bytes& bytes) {
  Refusal refusal = ask_of(config, ranks, [&](int rank, int64_t planned) {
    const int64_t all = bytes(rank, planned);
    return RankMemory{.available = all, .total = all};
  });
  EXPECT_EQ(refusal.code, refusal.refused == 0 ? ExitCode::done : ExitCode::bad_input);
  return refusal;
}

TEST(DeviceMemoryInfo, WhatFitsToTheLastByteIsAccepted) {
  const RunConfig config = config_of({.pp = 2});
  EXPECT_EQ(ask(config, 2, [](int, int64_t planned) { return planned; }).refused, 0);
  EXPECT_EQ(ask(config, 2, [](int rank, int64_t planned) { return planned - rank; }).refused, 2);
}

TEST(DeviceMemoryInfo, TheRankThatLacksMostIsNamedWithItsPlan) {
  const RunConfig config = config_of({.pp = 3});
  RunConfig deep = config;
  deep.model.layers = 6;
  deep.train.global_batch = 12;
  const Refusal refusal =
      ask(deep, 3, [](int rank, int64_t planned) { return planned - (rank == 1 ? 5'000'000 : 1'000'000); });
  EXPECT_EQ(refusal.refused, 3);
  EXPECT_THAT(refusal.text, HasSubstr("device of rank 1 on "));
  EXPECT_THAT(refusal.text, HasSubstr("(tp 0, pp 1, dp 0)"));
  EXPECT_THAT(refusal.text, HasSubstr("0.005 GB missing"));
  for (const char* category : {"activations", "optimizer", "parameters", "reserve", "workspace"}) {
    EXPECT_THAT(refusal.text, HasSubstr(std::string("\n  ") + category)) << category;
  }
}

// What others hold at present may be free when the run is started again; what is not there never will be.
TEST(DeviceMemoryInfo, WhatIsOnlyNotFreeIsNoFaultOfTheRun) {
  const RunConfig config = config_of({.pp = 2});
  const Refusal held = ask_of(config, 2, [](int rank, int64_t planned) {
    return RankMemory{.available = planned - rank * 5'000'000, .total = planned};
  });
  EXPECT_EQ(held.refused, 2);
  EXPECT_EQ(held.code, ExitCode::crash);
  EXPECT_THAT(held.text,
              AllOf(HasSubstr("device of rank 1 on "),
                    HasSubstr("0.005 GB missing, which other processes use now: start again once they have freed it")));
  const Refusal both = ask_of(config, 2, [](int rank, int64_t planned) {
    return RankMemory{.available = planned - (rank == 0 ? 1 : 5'000'000), .total = planned - (rank == 0 ? 1 : 0)};
  });
  EXPECT_EQ(both.refused, 2);
  EXPECT_EQ(both.code, ExitCode::bad_input);
  EXPECT_THAT(both.text, AllOf(HasSubstr("device of rank 0 on "), Not(HasSubstr("use now"))));
}

// Ranks of a host need its room together.
TEST(DeviceMemoryInfo, OfAHostItsRanksAreCountedTogether) {
  RunConfig config = config_of({});
  config.device.kind = DeviceChoice::cpu;
  config.train.global_batch = 8;
  const int64_t planned = plan_of(config, make_layout({}, 2), 0).memory_total();
  const ParallelLayout layout = make_layout(config.parallel, 2);
  for (const int64_t missing : {int64_t{0}, int64_t{1}}) {
    std::mutex mutex;
    std::string text;
    int refused = 0;
    run_thread_ranks(2, [&](HostCommunicator& world) {
      const int64_t all = 2 * planned - missing;
      try {
        require_memory_for_plan(world, config, layout, 1, plan_of(config, layout, world.rank()),
                     {.available = all, .total = all, .planned_by_others = planned, .ranks = 2});
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::bad_input);
        const std::lock_guard lock(mutex);
        ++refused;
        if (world.rank() == 0) text = error.what();
      }
    });
    EXPECT_EQ(refused, missing == 0 ? 0 : 2);
    if (missing == 0) continue;
    EXPECT_THAT(text, HasSubstr("on the host of rank 0 on "));
    EXPECT_THAT(text, HasSubstr(" more for its other 1 ranks, "));
    EXPECT_THAT(text, Not(HasSubstr("device.reserve")));
  }
}

// Advice to use less memory has been planned; what cannot be planned is not advised.
TEST(DeviceMemoryInfo, KeysThatHelpAreTold) {
  RunConfig config = config_of({});
  config.train.global_batch = 8;
  config.train.micro_batch = 4;
  config.train.sequence_length = 4096;
  RunConfig halved = config;
  halved.train.micro_batch = 2;
  const int64_t enough = plan_of(halved, make_layout({}, 2), 0).memory_total();
  const std::string text = ask(config, 2, [&](int, int64_t) { return enough; }).text;
  EXPECT_THAT(text, HasSubstr(fmt::format("  train.micro_batch=2            {:>9.3f} GB\n",
                                          static_cast<double>(enough) / 1e9)));
  EXPECT_THAT(text, HasSubstr("  train.micro_batch=1 "));
  EXPECT_THAT(text, HasSubstr("  parallel.recompute=full "));
  EXPECT_THAT(text, HasSubstr("  parallel.zero=1 "));
  EXPECT_THAT(text, HasSubstr(" *\n"));
  EXPECT_THAT(text, HasSubstr("device.reserve (1152 MiB)"));
  const std::string alone = ask(config, 1, [&](int, int64_t) { return enough; }).text;
  EXPECT_THAT(alone, Not(HasSubstr("parallel.zero")));
  EXPECT_THAT(alone, Not(HasSubstr("parallel.tp=2")));
}

// Ranks hold other parts of the model then: what the rank that lacks would need says nothing of the others.
TEST(DeviceMemoryInfo, OfAnotherLayoutTheRankThatNeedsMostIsTold) {
  RunConfig config = config_of({});
  config.model.layers = 8;
  config.model.hidden = 128;
  config.model.ffn = 512;
  config.train.global_batch = 8;
  config.train.micro_batch = 1;
  config.train.sequence_length = 256;
  RunConfig cut = config;
  cut.parallel.pp = 2;
  const ParallelLayout layout = make_layout(cut.parallel, 2);
  const int64_t first = plan_of(cut, layout, 0).memory_total(), second = plan_of(cut, layout, 1).memory_total();
  ASSERT_GT(first, second + 1'000'000);
  ASSERT_GT(plan_of(config, make_layout({}, 2), 1).memory_total(), first + 1'000'000);
  const std::string text = ask(config, 2, [&](int rank, int64_t planned) { return rank == 1 ? second : planned; }).text;
  EXPECT_THAT(text, HasSubstr("device of rank 1 on "));
  EXPECT_THAT(text, HasSubstr(fmt::format("  parallel.pp=2                  {:>9.3f} GB *\n",
                                          static_cast<double>(first) / 1e9)));
}

TEST(DeviceMemoryInfo, TheScheduleThatKeepsLeastIsTold) {
  RunConfig config = config_of({.pp = 2, .pipeline = PipelineKind::gpipe});
  config.train.global_batch = 8;
  config.train.micro_batch = 1;
  config.train.sequence_length = 4096;
  const auto refused = [&] { return ask(config, 2, [](int, int64_t planned) { return planned / 2; }).text; };
  EXPECT_THAT(refused(), HasSubstr("  parallel.pipeline=1f1b "));
  config.model.layers = 4;
  config.parallel.pipeline = PipelineKind::interleaved;
  config.parallel.chunks = 2;
  EXPECT_THAT(refused(), HasSubstr("  parallel.pipeline=1f1b parallel.chunks=1 "));
  config.parallel.pipeline = PipelineKind::one_forward_one_backward;
  config.parallel.chunks = 1;
  EXPECT_THAT(refused(), Not(HasSubstr("parallel.pipeline=")));
}

}  // namespace
}  // namespace shiftron::testing
