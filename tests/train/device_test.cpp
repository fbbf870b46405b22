// Where a process is bound. Which kernel multiplies bfloat16: one choice for all ranks, kept in a checkpoint, replaced
// if a processor lacks it.
#include "train/device.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <thread>

#include "expect_error.h"
#include "kernels/choose_products.h"
#include "kernels/processors.h"
#include "parallel/host_communicator.h"
#include "run/saved_state.h"
#include "train/small_model.h"

namespace shiftron::testing {
namespace {

constexpr Bfloat16Products kLoops = {ProductsBy::float32, ProductsBy::tile_loops, ProductsBy::library,
                                     ProductsBy::tile_loops};

RunConfig bfloat16_config(Deterministic deterministic) {
  RunConfig config = small_config(all_shifts()[1].shift, Precision::bf16);
  config.train.deterministic = deterministic;
  return config;
}

TEST(BfloatProducts, AreChosenOnceForAllRanks) {
  for (const Deterministic deterministic : {Deterministic::off, Deterministic::repeat}) {
    std::mutex mutex;
    std::vector<Bfloat16Products> chosen;
    std::string told;
    run_thread_ranks(3, [&](HostCommunicator& world) {
      Ledger ledger;
      Stream stream{.ledger = &ledger};
      const StartedDevice started =
          start_device(bfloat16_config(deterministic), {.local_rank = world.rank()}, world, stream);
      const std::lock_guard lock(mutex);
      chosen.push_back(stream.cpu.bfloat16);
      told += started.products;
    });
    ASSERT_EQ(chosen.size(), 3u);
    EXPECT_TRUE(chosen[0] == chosen[1] && chosen[0] == chosen[2]);
    if (deterministic == Deterministic::off)
      EXPECT_THAT(told,
                  ::testing::MatchesRegex("forward by [a-z0-9]+ at [0-9]+ GFLOP/s, to input .*, attention by .*"));
    else
      EXPECT_EQ(told, "");
  }
}

TEST(BfloatProducts, ThatAreMissingHereAreReplacedAndTold) {
  run_thread_ranks(2, [&](HostCommunicator& world) {
    CpuOptions cpu;
    EXPECT_EQ(restore_products(kLoops, world, cpu),
              "to input by tile loops, now by library; attention by tile loops, now by vectors");
    EXPECT_EQ(cpu.bfloat16, (Bfloat16Products{.forward = ProductsBy::float32, .to_weight = ProductsBy::library}));
    EXPECT_EQ(restore_products({.to_weight = ProductsBy::library, .attention = ProductsBy::float32}, world, cpu), "");
    EXPECT_EQ(cpu.bfloat16.attention, ProductsBy::float32);
  });
}

TEST(BfloatProducts, AreKeptInACheckpoint) {
  SavedState state;
  EXPECT_EQ(saved_state(to_json(state), "here").bfloat16, std::nullopt);
  state.bfloat16 = kLoops;
  EXPECT_EQ(saved_state(to_json(state), "here").bfloat16, kLoops);
  nlohmann::json json = nlohmann::json::parse(to_json(state));
  json["bfloat16_products"]["forward"] = "abacus";
  EXPECT_ERROR(saved_state(json.dump(), "here"), ExitCode::no_checkpoint,
               "here: this version has no matrix products by abacus");
  // Of older versions.
  json.erase("bfloat16_products");
  json["bfloat16_matmul"] = true;
  EXPECT_EQ(saved_state(json.dump(), "here").bfloat16->attention, ProductsBy::float32);
  json["bfloat16_tiles"] = true;
  EXPECT_EQ(saved_state(json.dump(), "here").bfloat16, Bfloat16Products());
}

// Existing threads move too, and new ones follow.
TEST(Binding, MovesTheProcess) {
  const std::vector<int> before = processors_of_process();
  if (before.size() < 2 || std::getenv("OMP_PROC_BIND") != nullptr) GTEST_SKIP() << "there is nothing to move to";
  std::binary_semaphore moved(0);
  std::vector<int> of_thread;
  std::jthread thread([&] {
    moved.acquire();
    of_thread = processors_of_process();
  });
  const std::vector<int> last = {before.back()};
  ASSERT_TRUE(bind_process(last));
  moved.release();
  thread.join();
  EXPECT_EQ(processors_of_process(), last);
  EXPECT_EQ(of_thread, last);
  EXPECT_FALSE(bind_process({1 << 15}));
  EXPECT_EQ(processors_of_process(), last);
  EXPECT_TRUE(bind_process(before));
}

}  // namespace
}  // namespace shiftron::testing
