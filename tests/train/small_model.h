// A model small enough to be run hundreds of times, with every form of the shift, for tests of what it computes.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "core/philox.h"
#include "train/training_harness.h"

namespace shiftron::testing {

struct NamedShift {
  const char* name;
  ShiftConfig shift;
};
inline void PrintTo(const NamedShift& named, std::ostream* out) { *out << named.name; }

inline std::vector<NamedShift> all_shifts() {
  return {{"vanilla", {.query = 0, .key = 0, .value = 0}},
          {"shift", {.query = 0, .key = 1, .value = 1}},
          {"taps", {.query = 1, .key = 3, .value = 2}},
          {"gate", {.query = 1, .key = 1, .value = 1, .form = ShiftForm::gate}},
          {"clamp", {.query = 2, .key = 1, .value = 3, .form = ShiftForm::clamp}}};
}

// An odd vocabulary, so that shards are uneven.
inline RunConfig small_config(const ShiftConfig& shift, Precision precision = Precision::fp64) {
  RunConfig config;
  config.model = {.layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .head_dim = 4, .ffn = 24, .vocab = 37,
                  .tie_embeddings = false, .init_std = 0.3, .shift = shift};
  config.train.steps = 8;
  config.train.global_batch = 4;
  config.train.micro_batch = 2;
  config.train.sequence_length = 12;
  config.train.precision = precision;
  config.optimizer.learning_rate = 1e-2;
  return config;
}

inline void set_element(const Tensor& tensor, int64_t index, double value) {
  if (tensor.dtype() == DType::float64) {
    tensor.data<double>()[index] = value;
  } else {
    tensor.data<float>()[index] = static_cast<float>(value);
  }
}

// Initial weights, but with norms and taps on which something depends: norms differ from 1, taps are of both signs and
// do not sum to 1, and none is within 0.1 of where a clamp bends. The same in every layout.
inline void set_weights(ParameterSet& set) {
  set.initialise(3);
  for (const auto& parameter : set.parameters()) {
    if (parameter->spec.group == DecayGroup::matrix) continue;
    const Philox random(11, parameter->spec.name);
    for_each_of(parameter->spec.shape, parameter->box, [&](int64_t local, int64_t logical) {
      double value = 1 + 0.3 * random.normal(static_cast<uint64_t>(logical));
      if (parameter->spec.group == DecayGroup::shift) {
        value = -0.3 + 1.6 * random.uniform(static_cast<uint64_t>(logical));
        for (const double bend : {0.0, 1.0}) {
          if (std::abs(value - bend) < 0.1) value = bend + (value < bend ? -0.1 : 0.1);
        }
      }
      set_element(parameter->weight, local, value);
    });
  }
}

// The same with a head of zeros: every token has the same logit.
inline void set_equal_logits(ParameterSet& set) {
  set_weights(set);
  for (const auto& parameter : set.parameters()) {
    if (parameter->spec.part != Part::head) continue;
    for (int64_t i = 0; i < parameter->weight.count(); ++i) set_element(parameter->weight, i, 0);
  }
}

// Samples without structure; documents of random length, whose last target is not counted.
inline SampleReader random_samples(int64_t length, int64_t vocab) {
  return [length, vocab](int64_t first, int64_t count, HostBatch& batch) {
    for (int64_t i = 0; i < count; ++i) {
      const Philox random(5, "sample " + std::to_string(first + i));
      const auto draw = [&](int64_t index) { return random.uniform(static_cast<uint64_t>(index)); };
      for (int64_t t = 0; t < length; ++t) {
        const auto at = static_cast<size_t>(i * length + t);
        const auto token = [&](int64_t row) { return static_cast<int32_t>(draw(row) * static_cast<double>(vocab)); };
        batch.ids[at] = token(t);
        batch.document_starts[at] = draw(1000 + t) < 0.25 ? 1 : 0;
        // Every third target is a label: another token than the next one.
        batch.targets[at] = draw(1000 + t + 1) < 0.25 ? -1 : token(t % 3 == 2 ? 500 + t : t + 1);
      }
    }
  };
}

// Room for Σ losses, counted targets and correct ones.
class Totals {
 public:
  Tensor tensor() const { return buffer_.tensor(0, DType::float64, {kLossTotals}); }
  double losses() const { return tensor().data<double>()[0]; }
  double counted() const { return tensor().data<double>()[1]; }
  double correct() const { return tensor().data<double>()[2]; }

 private:
  Ledger ledger_;
  Buffer buffer_{DeviceKind::cpu, 8 * kLossTotals, ledger_, "test"};
};

}  // namespace shiftron::testing
