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

// Receives are posted ahead, so what a pass loads would wait for messages that it has yet to cause: it is all loaded
// before, when algorithms are chosen.
TEST(Loading, WaitsForNoMessage) {
  const LoadingWaits waits;
  for (const DeviceLayout& layout : device_layouts()) {
    if (layout.parallel.pp == 1 || layout.ranks > 4) continue;
    SCOPED_TRACE(layout.name);
    RunConfig config = layout_config(layout);
    config.train.precision = Precision::bf16;
    config.model.hidden = 32;  // heads as cuDNN takes them
    config.model.head_dim = 8;
    config.train.sequence_length = 16;
    Log log;
    run_thread_ranks(layout.ranks, [&](HostCommunicator& world) {
      Ledger ledger;
      DeviceRank rank(config, world, ledger, {.local_rank = world.rank()},
                      random_samples(config.train.sequence_length, config.model.vocab));
      choose_algorithms(config, *rank.trainer, rank.reader(1), world, "", "", log);
      for (int64_t step = 1; step <= 2; ++step) (void)rank.step(step);
    });
  }
}

}  // namespace
}  // namespace shiftron::testing
