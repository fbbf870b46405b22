// What a training step asks of CUDA in addition to its work: the host waits only where stated, and nothing is
// allocated.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/device_training.h"
#include "machine/cuda/counts.h"
#include "machine/cuda/nccl.h"
#include "machine/cuda/streams.h"
#include "machine/cuda/trace.h"

namespace shiftron::testing {
namespace {

using machine::Counts;
using machine::counts;

// A rank trains on the calling thread, as a run does: each result is read while the next step is under way.
class CudaRank {
 public:
  CudaRank(const RunConfig& config, HostCommunicator& world) : rank_(config, world, ledger_) {}
  // What one more step asked for.
  Counts step() {
    const Counts before = counts();
    ++number_;
    rank_.trainer->step(number_, rank_.reader(number_), false);
    if (number_ > 1) (void)rank_.trainer->result(number_ - 1);
    return counts() - before;
  }
  // Operations of communicators that the steps so far have started.
  int64_t exchanged() const {
    int64_t calls = 0;
    for (const auto& [name, cost] : ledger_.traffic()) calls += cost.calls;
    return calls;
  }
  void drain() { (void)rank_.trainer->result(number_); }
  Trainer& trainer() { return *rank_.trainer; }

 private:
  Ledger ledger_;
  DeviceRank rank_;
  int64_t number_ = 0;
};

RunConfig config_of(const ParallelSection& parallel, Precision precision = Precision::fp32) {
  RunConfig config = small_config(all_shifts()[1].shift, precision);
  config.model.layers = std::max(parallel.pp * parallel.chunks, 1);
  config.train.global_batch = 4;
  config.train.micro_batch = 1;
  config.device.kind = DeviceChoice::cuda;
  config.parallel = parallel;
  return config;
}

// For `ranks` ranks that train in this layout: after step 1 nothing is allocated, and the host waits for a slot of the
// loader for each microbatch, for the result of the step before, and for that of the one before it, which is ready.
void expect_calls(const RunConfig& config, int ranks) {
  machine::restart_device({.order = Order::late});
  machine::set_nccl({});
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    CudaRank rank(config, world);
    world.barrier();
    const int64_t connections = machine::nccl_connections();
    world.barrier();
    rank.step();
    const int loaded = rank.trainer().microbatches() * chunks_of(schedule_of(config));
    const int64_t exchanged = rank.exchanged();
    int64_t events = 0;  // made
    for (int step = 2; step <= 5; ++step) {
      const Counts found = rank.step();
      const int results = step == 2 ? 1 : 2;
      EXPECT_EQ(found, (Counts{.event_waits = loaded + results, .events = found.events})) << "step " << step;
      events += found.events;
    }
    // For the begin and the end of a step, of which there are two slots, and for what of two steps may be under way:
    // each operation has an event where its stream comes to wait for it, and one at its end.
    EXPECT_LE(events, 3 + 2 * 2 * exchanged);
    rank.drain();
    world.barrier();
    // A host would wait for its peers there, and these may wait for it.
    EXPECT_EQ(machine::nccl_connections(), connections) << "made in a step";
  });
}

TEST(CudaTrainingCalls, WaitForTheLoadersSlotsAndTheResultBefore) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) expect_calls(config_of({}, precision), 1);
}

TEST(CudaTrainingCalls, AreTheSameInEveryLayout) {
  using enum PipelineKind;
  const std::vector<std::pair<ParallelSection, int>> layouts = {
      {{.tp = 2}, 2}, {{.zero = 1, .bucket_elements = 300}, 2}, {{.tp = 2, .zero = 1}, 4},
      {{.pp = 2}, 2}, {{.pp = 2, .pipeline = zb_h1}, 2},        {{.pp = 2, .chunks = 2, .pipeline = interleaved}, 2}};
  for (const auto& [parallel, ranks] : layouts) {
    SCOPED_TRACE(::testing::Message() << "tp " << parallel.tp << " pp " << parallel.pp << " chunks "
                                      << parallel.chunks);
    expect_calls(config_of(parallel), ranks);
  }
}

// ---- ranges ---------------------------------------------------------------------------------------------------------
TEST(CudaTrainingRanges, AreNamedLikeTheCode) {
  machine::restart_device({.order = Order::late});
  const auto world = make_single_world();
  RunConfig config = config_of({});
  config.model.layers = 2;
  config.train.global_batch = 2;
  CudaRank rank(config, *world);
  machine::take_ranges();
  rank.step();
  rank.drain();
  const auto microbatch = [](int number, const std::string& precise, const std::string& matrices) {
    const std::string of = " of microbatch " + std::to_string(number) + ", chunk 0\n";
    return "  rows" + of + "  forward" + of +
           "    embedding\n"
           "    layers.0\n      attention\n      mlp\n"
           "    layers.1\n      attention\n      mlp\n"
           "    head\n"
           "  backward" +
           of +
           "    head\n"
           "    layers.1\n      mlp\n      attention\n"
           "    layers.0\n      mlp\n      attention\n" +
           precise + "    embedding\n" + matrices;
  };
  std::string found;
  for (const std::string& range : machine::take_ranges()) found += range + "\n";
  EXPECT_EQ(found, "step 1\n" + microbatch(0, "", "") +
                       microbatch(1, "      exchange of bucket 0\n", "      exchange of bucket 1\n") +
                       "  optimizer update\n");
  EXPECT_EQ(machine::open_ranges(), 0);
  rank.trainer().evaluate(1, [](int, HostBatch&) {});
  EXPECT_EQ(machine::take_ranges().front(), "evaluation");
  EXPECT_EQ(machine::open_ranges(), 0);
}

TEST(CudaTrainingCalls, AnArenaIsOneAllocation) {
  machine::restart_device({.order = Order::late});
  Ledger ledger;
  Stream stream{.ledger = &ledger};
  const std::unique_ptr<Queue> queue = start_cuda(stream);
  const Counts before = counts();
  Arena arena(stream, "arena", {{"arena", 100 * kAlignment}}, "activations");
  EXPECT_EQ((counts() - before).device_allocations, 1);
  for (int round = 0; round < 3; ++round) {
    for (int tensor = 0; tensor < 50; ++tensor) arena.allocate(DType::float32, {tensor + 1});
    arena.release();
  }
  EXPECT_EQ((counts() - before).device_allocations, 1);
  EXPECT_EQ((counts() - before).frees, 0);
}

}  // namespace
}  // namespace shiftron::testing
