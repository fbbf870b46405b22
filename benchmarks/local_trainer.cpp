// One rank's training steps without a run around them.
#include "local_trainer.h"

#include <chrono>

#include "core/philox.h"
#include "train/batches.h"

namespace shiftron {

using Clock = std::chrono::steady_clock;

SampleReader random_samples(const RunConfig& config) {
  return [length = config.train.sequence_length, vocab = static_cast<double>(config.model.vocab),
          random = Philox(1, "tokens")](int64_t first_sample, HostBatch& batch) {
    const auto token = [&](int64_t row) {
      return static_cast<int32_t>(random.uniform(static_cast<uint64_t>(first_sample * length + row)) * vocab);
    };
    for (int64_t row = 0; row < static_cast<int64_t>(batch.ids.size()); ++row) {
      batch.ids[row] = token(row);
      batch.targets[row] = token(row + 1);
      batch.document_starts[row] = row % length == 0;
    }
  };
}

LocalTrainer::LocalTrainer(const RunConfig& config, int threads)
    : config_(config), world_(make_single_world()), stream_{.ledger = &ledger_} {
  const ParallelLayout layout = make_layout(config.parallel, 1);
  device_ = start_device(config, {.threads = threads}, *world_, stream_);
  Ledger planned;
  const MemoryPlan plan = plan_memory(config, layout, 0, threads, planned);
  trainer_.emplace(config, make_groups(*world_, layout, config.model.kv_heads), stream_, plan);
  parameters().initialise(static_cast<uint64_t>(config.train.seed));
}

void LocalTrainer::warm_up(const SampleReader& read) {
  for (int i = 0; i < 2; ++i) step(read);
}

double LocalTrainer::step(const SampleReader& read) {
  number_ += 1;
  const auto start = Clock::now();
  trainer_->step(
      number_, [&](int index, HostBatch& batch) { read(first_sample(config_, 1, number_, index, 0), batch); }, false);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void LocalTrainer::start_profile() {
  ledger_.clear_work();
  stream_.timed = true;
}

MachineRates LocalTrainer::rates() {
  return {measure_matmul_peak(stream_.cpu, product_type(config_.train.precision, stream_.cpu)),
          measure_copy_bandwidth(stream_.cpu)};
}

}  // namespace shiftron
