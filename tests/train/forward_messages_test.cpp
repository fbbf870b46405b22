// Only a forward pass: a stage that is faster than the next one is delayed, because its messages are copies in memory.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "train/small_model.h"

namespace shiftron::testing {
namespace {

class ForwardMessages : public ::testing::TestWithParam<PipelineKind> {};

TEST_P(ForwardMessages, ASlowHeadHoldsTheFirstStageBack) {
  constexpr int kMicrobatches = 400, kMostAhead = 100;
  RunConfig config = small_config({});
  config.model.layers = 4;
  config.parallel.pp = 2;
  config.parallel.pipeline = GetParam();
  if (GetParam() == PipelineKind::interleaved) config.parallel.chunks = 2;
  const SampleReader samples = random_samples(config.train.sequence_length, config.model.vocab);
  std::atomic<int> read = 0, done = 0;
  run_thread_ranks(2, [&](HostCommunicator& world) {
    RankTrainer rank(config, world);
    Engine& engine = rank.trainer->engine();
    const Totals totals;
    const BatchReader reader = rank.reader(1, samples);
    const auto begin = [&](int index, HostBatch& batch) {
      if (world.rank() == 0) read = index;
      reader(index % 2, batch);
    };
    engine.evaluate(kMicrobatches, begin, totals.tensor(), [&](int, const Tensor&) {
      if (done++ > 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_LT(read, kMostAhead);
    });
  });
  EXPECT_EQ(read, kMicrobatches - 1);
  EXPECT_EQ(done, kMicrobatches);
}

INSTANTIATE_TEST_SUITE_P(Pipelines, ForwardMessages,
                         ::testing::Values(PipelineKind::gpipe, PipelineKind::one_forward_one_backward,
                                           PipelineKind::interleaved, PipelineKind::zb_v));

}  // namespace
}  // namespace shiftron::testing
