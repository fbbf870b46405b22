// Trains small models in tests: ranks are threads, batches come from a function, tensors are gathered.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "train/batches.h"
#include "train/trainer.h"

namespace shiftron::testing {

// Fills samples [first, first + count): count · sequence_length entries each.
using SampleReader = std::function<void(int64_t first, int64_t count, HostBatch& batch)>;
using TensorMap = std::map<std::string, std::vector<double>>;

struct TrainerOptions {
  Bodies bodies = Bodies::fast;
  Queue* queue = nullptr;
  std::optional<Schedule> schedule{};
};

// A trainer on one rank of `world`, planned on meta as a real run is.
struct RankTrainer {
  Ledger ledger;
  Stream stream;
  std::unique_ptr<Trainer> trainer;
  RunConfig config;
  ParallelLayout layout;

  RankTrainer(const RunConfig& run_config, HostCommunicator& world, const TrainerOptions& options = {})
      : stream{.ledger = &ledger, .cpu = {.threads = 1, .bodies = options.bodies}, .queue = options.queue},
        config(run_config), layout(make_layout(run_config.parallel, world.size())) {
    Ledger planned;
    const MemoryPlan plan = plan_memory(config, layout, world.rank(), 1, planned, options.schedule);
    const Schedule schedule = options.schedule.value_or(schedule_of(config));
    trainer = std::make_unique<Trainer>(config, make_groups(world, layout, config.model.kv_heads, schedule), stream, plan,
                                        options.schedule);
    trainer->engine().parameters().initialise(static_cast<uint64_t>(config.train.seed));
  }
  BatchReader reader(int64_t step, const SampleReader& read) {
    return [this, step, &read](int index, HostBatch& batch) {
      read(first_sample(config, layout.dp, step, index, trainer->engine().groups().at.dp), config.train.micro_batch,
           batch);
    };
  }
  StepResult step(int64_t number, const SampleReader& read) {
    trainer->step(number, reader(number, read), false);
    return trainer->result(number);
  }
};

inline double element(const Tensor& tensor, int64_t index) {
  return tensor.dtype() == DType::float64 ? tensor.data<double>()[index] : tensor.data<float>()[index];
}

// Visits (index in the box, index in the logical tensor).
template <typename Visit>
void for_each_of(const Shape& whole, const Box& box, Visit visit) {
  const int dims = whole.dims();
  for (int64_t local = 0; local < box.extent.count(); ++local) {
    int64_t rest = local, logical = 0, scale = 1;
    for (int dim = dims - 1; dim >= 0; --dim) {
      logical += (box.offset[dim] + rest % box.extent[dim]) * scale;
      rest /= box.extent[dim];
      scale *= whole[dim];
    }
    visit(local, logical);
  }
}

// Elements [range) of a parameter's box.
inline std::vector<double> masters_of(const ParameterSet& set, const Parameter& parameter, Range range) {
  std::vector<std::byte> room;
  const void* values = set.read(parameter, ParameterState::master, range.begin, range.size(), room);
  if (set.types().accumulation == DType::float64) {
    return {static_cast<const double*>(values), static_cast<const double*>(values) + range.size()};
  }
  return {static_cast<const float*>(values), static_cast<const float*>(values) + range.size()};
}

inline std::vector<double> gradients_of(const ParameterSet&, const Parameter& parameter, Range range) {
  std::vector<double> values;
  for (int64_t i = range.begin; i < range.end; ++i) values.push_back(element(parameter.gradient, i));
  return values;
}

// Adds this rank's parts of what it owns, as `of` gives their values, to `tensors`, whole tensors by name.
inline void collect(const ParameterSet& set, std::vector<double> (*of)(const ParameterSet&, const Parameter&, Range),
                    TensorMap& tensors, std::mutex& mutex) {
  const std::lock_guard lock(mutex);
  for (const auto& parameter : set.parameters()) {
    const Range part = parameter->part;
    if (!parameter->owner || part.size() == 0) continue;
    std::vector<double>& values = tensors[parameter->spec.name];
    values.resize(static_cast<size_t>(parameter->spec.shape.count()));
    const std::vector<double> own = of(set, *parameter, part);
    for_each_of(parameter->spec.shape, parameter->box, [&](int64_t local, int64_t logical) {
      if (local >= part.begin && local < part.end) values[logical] = own[static_cast<size_t>(local - part.begin)];
    });
  }
}

// Sets masters from whole tensors.
inline void assign(ParameterSet& set, const TensorMap& tensors) {
  for (const auto& parameter : set.parameters()) {
    const std::vector<double>& values = tensors.at(parameter->spec.name);
    CHECK(values.size() == static_cast<size_t>(parameter->spec.shape.count()), parameter->spec.name, " has ",
          values.size(), " values");
    for_each_of(parameter->spec.shape, parameter->box, [&](int64_t local, int64_t logical) {
      const auto narrow = static_cast<float>(values[logical]);
      const bool wide = parameter->weight.dtype() == DType::float64;
      set.write(*parameter, ParameterState::master, local, 1, wide ? static_cast<const void*>(&values[logical]) : &narrow);
    });
  }
}

// ‖a − b‖ / ‖b‖; 0 where both are 0.
inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  CHECK(a.size() == b.size(), a.size(), " values against ", b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

}  // namespace shiftron::testing
