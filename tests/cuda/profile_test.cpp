// Of a timed stream the ledger has the time of every kernel, as the device tells it.
#include <gtest/gtest.h>

#include "core/event.h"
#include "cuda/device_training.h"
#include "cuda/gpus.h"

namespace shiftron::testing {
namespace {

TEST(CudaProfile, HasTheTimeOfEveryKernel) {
  NEED_GPUS(1);
  RunConfig config = small_config({.query = 0, .key = 1, .value = 1}, Precision::bf16);
  config.device.kind = DeviceChoice::cuda;
  run_thread_ranks(1, [&](HostCommunicator& world) {
    Ledger ledger;
    DeviceRank rank(config, world, ledger);
    rank.step(1);
    ledger.clear_work();
    rank.stream.timed = true;
    rank.step(2);
    rank.stream.timed = false;
    finish(rank.stream);
    for (const auto& [name, cost] : ledger.kernels()) EXPECT_EQ(cost.seconds, 0) << name;
    ledger.add_reached_times();
    EXPECT_GT(ledger.kernels().size(), 10u);
    for (const auto& [name, cost] : ledger.kernels()) EXPECT_GT(cost.seconds, 0) << name;
  });
}

}  // namespace
}  // namespace shiftron::testing
