// Training on devices in many layouts, each rank's part of the result compared with one CPU rank that trains the whole
// model.
#pragma once

#include <string>
#include <vector>

#include "cuda/device_training.h"

namespace shiftron::testing {

struct DeviceLayout {
  std::string name;
  int ranks;
  ParallelSection parallel;
  bool tied = false;
};

inline std::vector<DeviceLayout> device_layouts() {
  using enum PipelineKind;
  using enum RecomputeKind;
  return {
      {"tp2", 2, {.tp = 2}},
      {"dp2", 2, {}},
      {"zero_dp2", 2, {.zero = 1, .bucket_elements = 300}},
      {"pp2", 2, {.pp = 2}, true},
      {"pp2_gpipe", 2, {.pp = 2, .pipeline = gpipe}},
      {"pp2_zb_h1", 2, {.pp = 2, .pipeline = zb_h1}},
      {"pp2_interleaved", 2, {.pp = 2, .chunks = 2, .pipeline = interleaved}},
      {"pp2_zb_v", 2, {.pp = 2, .chunks = 2, .pipeline = zb_v}, true},
      {"tp4", 4, {.tp = 4}},
      {"tp2_zero_dp2", 4, {.tp = 2, .zero = 1, .bucket_elements = 200}},
      {"tp2_pp2", 4, {.tp = 2, .pp = 2, .recompute = selective}},
      {"zero_dp4", 4, {.zero = 1}, true},
      {"pp2_zero_dp2", 4, {.pp = 2, .zero = 1, .recompute = full}},
      {"pp4_zb_h1", 4, {.pp = 4, .pipeline = zb_h1}},
      {"tp2_pp2_interleaved_zero_dp2", 8, {.tp = 2, .pp = 2, .chunks = 2, .zero = 1, .pipeline = interleaved}},
      {"tp2_pp4_zb_h1", 8, {.tp = 2, .pp = 4, .pipeline = zb_h1}},
      {"tp4_pp2_zb_v", 8, {.tp = 4, .pp = 2, .chunks = 2, .pipeline = zb_v}, true},
  };
}

// What a step returns is the same on all ranks.
struct Steps {
  std::vector<double> losses, norms;
};

// Three steps of one rank, with an evaluation between them, which leaves no trace; then `look` has its parameters.
template <typename Look>
Steps train_rank(const RunConfig& config, HostCommunicator& world, const HostShare& share, const Look& look) {
  Ledger ledger;
  DeviceRank rank(config, world, ledger, share, random_samples(config.train.sequence_length, config.model.vocab));
  Steps steps;
  for (int64_t step = 1; step <= 3; ++step) {
    const StepResult result = rank.step(step);
    if (step == 2) rank.trainer->evaluate(1, rank.reader(1));
    steps.losses.push_back(result.loss);
    steps.norms.push_back(result.gradient_norm);
  }
  CHECK(rank.trainer->arena_peaks() == rank.plan, "rank ", world.rank(), " took another memory than planned");
  look(rank.parameters());
  return steps;
}

inline RunConfig layout_config(const DeviceLayout& layout) {
  RunConfig config = small_config(all_shifts()[1].shift, Precision::fp32);
  config.model.layers = 4;
  config.model.tie_embeddings = layout.tied;
  config.train.micro_batch = 1;
  config.parallel = layout.parallel;
  config.device.kind = DeviceChoice::cuda;
  return config;
}

// Of one rank of `world`; throws where it differs by more than sums in another order do. Updates divide by the root of
// a square, so that weights differ by more.
inline void check_layout(const DeviceLayout& layout, HostCommunicator& world, const HostShare& share = {}) {
  constexpr double kBound = 1e-6;
  const RunConfig config = layout_config(layout);
  RunConfig alone = config;
  alone.parallel = {};
  alone.device.kind = DeviceChoice::cpu;
  TensorMap masters;
  std::mutex mutex;
  const Steps expected = train_rank(alone, *make_single_world(), {},
                                    [&](const ParameterSet& set) { collect(set, masters_of, masters, mutex); });
  const std::string who = layout.name + ", rank " + std::to_string(world.rank());
  const Steps found = train_rank(config, world, share, [&](const ParameterSet& set) {
    for (const auto& parameter : set.parameters()) {
      const Range part = parameter->part;
      if (!parameter->owner || part.size() == 0) continue;
      const std::vector<double>& whole = masters.at(parameter->spec.name);
      const std::vector<double> own = masters_of(set, *parameter, part);
      double difference = 0, norm = 0;
      for (const double value : whole) norm += value * value;
      for_each_of(parameter->spec.shape, parameter->box, [&](int64_t local, int64_t logical) {
        if (local < part.begin || local >= part.end) return;
        const double off = own[static_cast<size_t>(local - part.begin)] - whole[static_cast<size_t>(logical)];
        difference += off * off;
      });
      CHECK(difference <= 100 * kBound * 100 * kBound * norm, who, ": ", parameter->spec.name, " is off by ",
            std::sqrt(difference / norm));
    }
  });
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    CHECK(std::abs(found.losses[i] - expected.losses[i]) <= kBound * expected.losses[i], who, ": the loss of step ",
          i + 1, " is ", found.losses[i], " instead of ", expected.losses[i]);
    CHECK(std::abs(found.norms[i] - expected.norms[i]) <= 10 * kBound * expected.norms[i], who, ": the norm of step ",
          i + 1, " is ", found.norms[i], " instead of ", expected.norms[i]);
  }
}

}  // namespace shiftron::testing
