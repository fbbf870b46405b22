// Code that is loaded while a message is awaited.
#include <gtest/gtest.h>

#include "cuda/layout_training.h"
#include "cuda/streams.h"
#include "train/device.h"
#include "train/library_choices.h"

namespace shiftron::testing {
namespace {

struct LoadingWaits {
  LoadingWaits() { machine::let_loading_wait(true); }
  ~LoadingWaits() { machine::let_loading_wait(false); }
};

std::vector<DeviceLayout> pipelines() {
  std::vector<DeviceLayout> some = device_layouts();
  std::erase_if(some, [](const DeviceLayout& layout) { return layout.parallel.pp == 1 || layout.ranks > 4; });
  return some;
}

// Of a layout, with heads as cuDNN takes them.
RunConfig loading_config(const DeviceLayout& layout) {
  RunConfig config = layout_config(layout);
  config.train.precision = Precision::bf16;
  config.model.hidden = 32;
  config.model.head_dim = 8;
  config.train.sequence_length = 16;
  return config;
}

// A rank that trains, whose algorithms are chosen.
struct WarmRank {
  WarmRank(const RunConfig& config, HostCommunicator& world)
      : rank(config, world, ledger, {.local_rank = world.rank()},
             random_samples(config.train.sequence_length, config.model.vocab)) {
    Log log;
    choose_algorithms(config, *rank.trainer, rank.reader(1), world, "", "", log);
  }
  Ledger ledger;
  DeviceRank rank;
};

const BatchReader kNothing = [](int, HostBatch&) {};

// One that evaluates alone, whose first pass is its first of all.
void evaluate_at_once(const RunConfig& config, HostCommunicator& world, int microbatches) {
  const ParallelLayout layout = make_layout(config.parallel, world.size());
  Ledger ledger, planned;
  Stream meta = planning_stream(config, 1, planned), stream{.ledger = &ledger, .cpu = {.threads = 1}};
  const auto planned_world = make_meta_world(world.rank(), world.size());
  Engine plan(config, make_groups(*planned_world, layout, config.model.kv_heads, schedule_of(config)), meta, {}, false);
  plan.evaluate(1, kNothing, Tensor(nullptr, DType::float64, {kLossTotals}, DeviceKind::meta));

  const auto queue = start_cuda(stream, {.local_rank = world.rank()});
  Engine engine(config, make_groups(world, layout, config.model.kv_heads, schedule_of(config), stream.device), stream,
                plan.arena_peaks(), false);
  engine.parameters().initialise(5);
  Buffer sums(stream.device, kLossTotals * size_of(DType::float64), ledger, "scalars");
  engine.evaluate(microbatches, kNothing, sums.tensor(0, DType::float64, {kLossTotals}));
  finish(stream);
}

class Loading : public ::testing::TestWithParam<DeviceLayout> {};

// Receives are posted ahead, so what a pass loads would wait for messages that it has yet to cause: it is all loaded
// before, when algorithms are chosen.
TEST_P(Loading, WaitsForNoMessage) {
  const LoadingWaits waits;
  run_thread_ranks(GetParam().ranks, [&](HostCommunicator& world) {
    WarmRank warm(loading_config(GetParam()), world);
    for (int64_t step = 1; step <= 2; ++step) (void)warm.rank.step(step);
  });
}

// Evaluation has no such pass: it posts receives ahead only after the first forward.
TEST_P(Loading, OfAnEvaluationWaitsForNoMessage) {
  const LoadingWaits waits;
  for (const int microbatches : {1, 4}) {
    run_thread_ranks(GetParam().ranks, [&](HostCommunicator& world) {
      evaluate_at_once(loading_config(GetParam()), world, microbatches);
    });
  }
}

// Documents that are apart in tasks, and in training are not, have plans of attention that no step needed.
TEST_P(Loading, OfDocumentsApartWaitsForNoMessage) {
  const LoadingWaits waits;
  RunConfig config = loading_config(GetParam());
  config.data.document_reset = false;
  for (const int microbatches : {1, 4}) {
    run_thread_ranks(GetParam().ranks, [&](HostCommunicator& world) {
      WarmRank warm(config, world);
      warm.rank.trainer->engine().run_layers(microbatches, warm.rank.reader(1),
                                             [](shiftron::Run&, const TransformerStage&, const Tensor&) {});
      finish(warm.rank.stream);
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Pipelines, Loading, ::testing::ValuesIn(pipelines()),
                         [](const ::testing::TestParamInfo<DeviceLayout>& layout) { return layout.param.name; });

}  // namespace
}  // namespace shiftron::testing
