// For a timed stream the ledger has the time of every kernel and of communication, as the device measures it.
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

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

// Times of communication in step 2 of two ranks of this layout. Of the two only one need wait for the other.
void expect_times_of_communication(const ParallelSection& parallel, const std::vector<std::string>& operations) {
  RunConfig config = small_config({.query = 0, .key = 1, .value = 1}, Precision::bf16);
  config.device.kind = DeviceChoice::cuda;
  config.parallel = parallel;
  std::mutex mutex;
  TimeSplit all;
  double awaited = 0;
  run_thread_ranks(2, [&](HostCommunicator& world) {
    Ledger ledger;
    DeviceRank rank(config, world, ledger);
    rank.step(1);
    ledger.clear_work();
    rank.stream.timed = true;
    const StepResult result = rank.step(2);
    EXPECT_LT(result.times.communication + result.times.wait, result.seconds);
    rank.stream.timed = false;
    rank.step(3);  // when what step 2 had under way at its end is over
    const std::lock_guard held(mutex);
    all.communication += result.times.communication;
    all.wait += result.times.wait;
    for (const std::string& name : operations) {
      ASSERT_TRUE(ledger.traffic_times().contains(name)) << name;
      EXPECT_GT(ledger.traffic_times().at(name).seconds, 0) << name;
      awaited += ledger.traffic_times().at(name).awaited;
    }
  });
  EXPECT_GT(all.communication, 0);
  EXPECT_EQ(all.wait > 0, parallel.pp > 1);
  EXPECT_GT(awaited, 0);
}

TEST(CudaProfile, HasTheTimeOfCommunication) {
  NEED_GPUS(2);
  expect_times_of_communication({.tp = 2}, {"tp all_gather", "tp reduce_scatter", "world all_reduce"});
  expect_times_of_communication({.zero = 1, .bucket_elements = 300}, {"dp reduce_scatter", "dp all_gather"});
  expect_times_of_communication({.pp = 2}, {"world all_reduce"});
}

}  // namespace
}  // namespace shiftron::testing
