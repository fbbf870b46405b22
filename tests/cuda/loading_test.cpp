// Code that is loaded while a message is awaited.
#include <gtest/gtest.h>

#include "cuda/layout_training.h"
#include "cuda/streams.h"
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

class Loading : public ::testing::TestWithParam<DeviceLayout> {};

// Receives are posted ahead, so what a pass loads would wait for messages that it has yet to cause: it is all loaded
// before, when algorithms are chosen.
TEST_P(Loading, WaitsForNoMessage) {
  const LoadingWaits waits;
  RunConfig config = layout_config(GetParam());
  config.train.precision = Precision::bf16;
  config.model.hidden = 32;  // heads as cuDNN takes them
  config.model.head_dim = 8;
  config.train.sequence_length = 16;
  Log log;
  run_thread_ranks(GetParam().ranks, [&](HostCommunicator& world) {
    Ledger ledger;
    DeviceRank rank(config, world, ledger, {.local_rank = world.rank()},
                    random_samples(config.train.sequence_length, config.model.vocab));
    choose_algorithms(config, *rank.trainer, rank.reader(1), world, "", "", log);
    for (int64_t step = 1; step <= 2; ++step) (void)rank.step(step);
  });
}
INSTANTIATE_TEST_SUITE_P(Pipelines, Loading, ::testing::ValuesIn(pipelines()),
                         [](const ::testing::TestParamInfo<DeviceLayout>& layout) { return layout.param.name; });

}  // namespace
}  // namespace shiftron::testing
