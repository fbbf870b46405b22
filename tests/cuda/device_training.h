// Trains small models in tests on a GPU, on the emulator, or on the CPU: ranks are threads.
#pragma once

#include <gtest/gtest.h>

#include "cuda/gpus.h"
#include "parallel/connect_groups.h"
#include "train/small_model.h"

namespace shiftron::testing {

// Samples without structure, with documents and targets that do not count. There are eight.
inline void read_few_samples(int64_t first, int64_t count, HostBatch& batch) {
  const auto rows = static_cast<int64_t>(batch.ids.size());
  const int64_t length = rows / count;
  for (int64_t i = 0; i < rows; ++i) {
    const Philox random(3, "sample " + std::to_string((first + i / length) % 8));
    const auto token = [&](int64_t t) { return static_cast<int32_t>(random.uniform(static_cast<uint64_t>(t)) * 37); };
    batch.ids[static_cast<size_t>(i)] = token(i % length);
    batch.targets[static_cast<size_t>(i)] = i % 7 == 6 ? -1 : token(i % length + 1);
    batch.document_starts[static_cast<size_t>(i)] = i % length == 0 || i % 5 == 4;
  }
}

// One rank on the device that config.device.kind names, planned on meta as a real run is.
struct DeviceRank {
  RunConfig config;
  Stream stream;
  std::unique_ptr<Queue> queue;
  ParallelLayout layout;
  MemoryPlan plan;
  SampleReader read;
  std::unique_ptr<Trainer> trainer;

  DeviceRank(const RunConfig& run_config, HostCommunicator& world, Ledger& ledger, const HostShare& share,
             SampleReader samples)
      : config(run_config),
        stream{.ledger = &ledger, .cpu = {.threads = 1}},
        queue(config.device.kind == DeviceChoice::cuda ? start_cuda(stream, share) : nullptr),
        layout(make_layout(config.parallel, world.size())),
        read(std::move(samples)) {
    Ledger planned;
    plan = plan_memory(config, layout, world.rank(), 1, planned);
    Groups groups = make_groups(world, layout, config.model.kv_heads, schedule_of(config), stream.device);
    connect_groups(world, groups, planned.traffic(), stream);
    trainer = std::make_unique<Trainer>(config, std::move(groups), stream, plan);
    parameters().initialise(5);
  }
  DeviceRank(const RunConfig& run_config, HostCommunicator& world, Ledger& ledger)
      : DeviceRank(run_config, world, ledger, {.local_rank = world.rank()}, read_few_samples) {}
  DeviceRank(const DeviceRank&) = delete;
  DeviceRank& operator=(const DeviceRank&) = delete;

  ParameterSet& parameters() { return trainer->engine().parameters(); }
  BatchReader reader(int64_t step) {
    return [this, step](int index, HostBatch& batch) {
      const int64_t first = first_sample(config, layout.dp, step, index, trainer->engine().groups().at.dp);
      read(first, config.train.micro_batch, batch);
    };
  }
  StepResult step(int64_t number) {
    trainer->step(number, reader(number), false);
    return trainer->result(number);
  }
};

inline std::vector<double> first_moments_of(const ParameterSet& set, const Parameter& parameter, Range range) {
  std::vector<std::byte> room;
  const auto* values =
      static_cast<const float*>(set.read(parameter, ParameterState::first_moment, range.begin, range.size(), room));
  return {values, values + range.size()};
}

inline RunConfig on_device(RunConfig config, DeviceChoice device) {
  config.device.kind = device;
  return config;
}

}  // namespace shiftron::testing
