// A trainer whose steps are measured, and its samples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ledger.h"
#include "parallel/host_communicator.h"
#include "train/device.h"
#include "train/profile.h"
#include "train/trainer.h"

namespace shiftron {

// Fills a microbatch with the samples from `first_sample` on.
using SampleReader = std::function<void(int64_t first_sample, HostBatch& batch)>;

// Tokens without meaning; each sample is one document.
SampleReader random_samples(const RunConfig& config);

// A trainer of a world of one, planned on meta as a real run is.
class LocalTrainer {
 public:
  LocalTrainer(const RunConfig& config, int threads);
  ParameterSet& parameters() { return trainer_->engine().parameters(); }

  void choose(const SampleReader& read);   // libraries their algorithms; changes nothing else
  void warm_up(const SampleReader& read);  // choose(), and steps that are not to be measured
  // Seconds of the next step.
  double step(const SampleReader& read) { return steps(1, read).seconds; }
  struct Steps {
    double seconds;  // of one, in the mean
    std::vector<double> losses;
  };
  // As a run does them: a result is read while the device works on the next step.
  Steps steps(int64_t count, const SampleReader& read);
  const Ledger& ledger();
  // What multiplies bfloat16 and at which rate it did so in the timing at the start; "" in other precisions.
  const std::string& products() const { return device_.products; }
  // Kernels are timed from here on.
  void start_profile();
  MachineRates rates();

 private:
  BatchReader batches(int64_t step, const SampleReader& read) const;

  RunConfig config_;
  std::unique_ptr<HostCommunicator> world_;
  Ledger ledger_;
  Stream stream_;
  StartedDevice device_;
  std::optional<Trainer> trainer_;
  int64_t number_ = 0;
};

}  // namespace shiftron
