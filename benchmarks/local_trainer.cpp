// One rank's training steps, without a run.
#include "local_trainer.h"

#include <chrono>

#include "core/event.h"
#include "core/philox.h"
#include "train/batches.h"
#include "train/library_choices.h"

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
  trainer_.emplace(config, make_groups(*world_, layout, config.model.kv_heads, {}, stream_.device), stream_, plan);
  parameters().initialise(static_cast<uint64_t>(config.train.seed));
}

BatchReader LocalTrainer::batches(int64_t step, const SampleReader& read) const {
  return [this, step, read](int index, HostBatch& batch) { read(first_sample(config_, 1, step, index, 0), batch); };
}

void LocalTrainer::choose(const SampleReader& read) {
  Log log;
  choose_algorithms(config_, *trainer_, batches(1, read), *world_, "", "", log);
}

void LocalTrainer::warm_up(const SampleReader& read) {
  choose(read);
  steps(2, read);
}

LocalTrainer::Steps LocalTrainer::steps(int64_t count, const SampleReader& read) {
  Steps result;
  const auto start = Clock::now();
  for (int64_t i = 0; i < count; ++i) {
    number_ += 1;
    trainer_->step(number_, batches(number_, read), false);
    if (i > 0) result.losses.push_back(trainer_->result(number_ - 1).loss);
  }
  result.losses.push_back(trainer_->result(number_).loss);
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(count);
  return result;
}

void LocalTrainer::start_profile() {
  ledger_.clear_work();
  stream_.timed = true;
}

const Ledger& LocalTrainer::ledger() {
  finish(stream_);
  ledger_.add_reached_times();
  return ledger_;
}

MachineRates LocalTrainer::rates() {
  return {measure_matmul_peak(stream_, product_type(config_.train.precision, stream_.cpu)),
          measure_copy_bandwidth(stream_)};
}

}  // namespace shiftron
