// The float64 PyTorch reference of tests/reference, and the same training by Trainer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "core/event.h"
#include "core/hdf5_file.h"
#include "train/training_harness.h"

namespace shiftron::testing {

constexpr std::array<const char*, 8> kGoldenModels = {"vanilla", "shift", "gate", "clamp",
                                                      "project", "taps",  "tied", "mha_no_reset"};
constexpr std::array<const char*, 3> kGoldenSeeds = {"1", "2", "3"};

struct Golden {
  RunConfig config;
  std::vector<int32_t> ids, targets;
  std::vector<uint8_t> starts;
  TensorMap initial, gradient, final;
  std::vector<double> loss, gradient_norm;
  std::map<std::string, double> gradient_error, update_error;  // PyTorch's own
  double loss_error = 0;
};

inline std::vector<double> read_doubles(const Hdf5File& file, const std::string& name) {
  if (file.info(name).type == Hdf5Type::f64) return file.read_all<double>(name, Hdf5Type::f64);
  const auto values = file.read_all<float>(name, Hdf5Type::f32);
  return {values.begin(), values.end()};
}

inline Golden read_golden(const std::string& name, Precision precision) {
  const Hdf5File file = Hdf5File::open(SHIFTRON_SOURCE_DIR "/tests/reference/golden/" + name + ".h5");
  const auto integer = [&](const char* key) { return file.integer_attribute("/", key); };
  const auto real = [&](const char* key) { return file.real_attribute("/", key); };
  Golden golden;
  ModelConfig& model = golden.config.model;
  model.layers = integer("layers");
  model.hidden = integer("hidden");
  model.heads = integer("heads");
  model.kv_heads = integer("kv_heads");
  model.head_dim = integer("head_dim");
  model.ffn = integer("ffn");
  model.vocab = integer("vocab");
  model.rope_base = real("rope_base");
  model.norm_epsilon = real("norm_epsilon");
  model.tie_embeddings = integer("tie_embeddings") != 0;
  model.shift.query = static_cast<int>(integer("query"));
  model.shift.key = static_cast<int>(integer("key"));
  model.shift.value = static_cast<int>(integer("value"));
  model.shift.form = from_string<ShiftForm>(file.text_attribute("/", "form")).value();
  golden.config.data.document_reset = integer("document_reset") != 0;
  TrainSection& train = golden.config.train;
  train.sequence_length = integer("sequence_length");
  train.global_batch = integer("global_batch");
  train.micro_batch = 2;  // accumulation over two microbatches
  train.steps = integer("steps");
  train.precision = precision;
  OptimizerSection& optimizer = golden.config.optimizer;
  optimizer.learning_rate = real("learning_rate");
  optimizer.warmup = integer("warmup");
  optimizer.betas = {real("beta1"), real("beta2")};
  optimizer.epsilon = real("epsilon");
  optimizer.weight_decay = real("weight_decay");
  optimizer.shift_weight_decay = real("shift_weight_decay");
  optimizer.shift_learning_rate_scale = real("shift_learning_rate_scale");
  optimizer.clip = real("clip");
  golden.ids = file.read_all<int32_t>("ids", Hdf5Type::i32);
  golden.targets = file.read_all<int32_t>("targets", Hdf5Type::i32);
  golden.starts = file.read_all<uint8_t>("document_starts", Hdf5Type::u8);
  golden.loss = read_doubles(file, "loss");
  golden.gradient_norm = read_doubles(file, "gradient_norm");
  const std::string own = "error/" + to_string(precision) + "/";
  for (const std::string& path : file.datasets()) {
    const auto in = [&](const std::string& group, auto& map) {
      if (path.starts_with(group)) map[path.substr(group.size())] = read_doubles(file, path);
    };
    in("initial/", golden.initial);
    in("gradient/", golden.gradient);
    in("final/", golden.final);
    const auto error = [&](const std::string& group, auto& map) {
      if (path.starts_with(own + group)) map[path.substr((own + group).size())] = read_doubles(file, path).at(0);
    };
    error("gradient/", golden.gradient_error);
    error("final_update/", golden.update_error);
  }
  if (file.has_dataset(own + "loss")) {
    for (const double error : read_doubles(file, own + "loss")) golden.loss_error = std::max(golden.loss_error, error);
  }
  return golden;
}

inline SampleReader reader_of(const Golden& golden) {
  return [&golden](int64_t first, int64_t count, HostBatch& batch) {
    const int64_t length = golden.config.train.sequence_length;
    const auto part = [&](const auto& all, auto& some) {
      std::copy_n(all.begin() + first * length, count * length, some.begin());
    };
    part(golden.ids, batch.ids);
    part(golden.targets, batch.targets);
    part(golden.starts, batch.document_starts);
  };
}

struct Measured {
  TensorMap gradient, final;
  std::vector<double> loss, gradient_norm;
  bool operator==(const Measured&) const = default;
};

// With `queue` the stream's. Each result is read while the next step is under way.
inline Measured train_golden(const Golden& golden, Queue* queue = nullptr) {
  Measured measured;
  std::mutex mutex;
  const auto world = make_single_world();
  RankTrainer rank(golden.config, *world, {.queue = queue});
  ParameterSet& set = rank.trainer->engine().parameters();
  assign(set, golden.initial);
  // Gradients of step 1, before the step that uses them.
  Ledger ledger;
  Buffer totals(DeviceKind::cpu, 8 * kLossTotals, ledger, "test");
  const SampleReader read = reader_of(golden);
  rank.trainer->engine().accumulate_gradients(rank.trainer->microbatches(), rank.reader(1, read),
                                              totals.tensor(0, DType::float64, {kLossTotals}));
  Event accumulated;
  accumulated.record(rank.stream);
  accumulated.wait_on_host();
  collect(set, gradients_of, measured.gradient, mutex);
  const double nominal = static_cast<double>(golden.config.train.global_batch * golden.config.train.sequence_length);
  const double counted = totals.tensor(0, DType::float64, {kLossTotals}).host_data<double>()[1];
  for (auto& [name, values] : measured.gradient) {
    for (double& value : values) value *= nominal / counted;
  }
  fill_zero(rank.stream, set.gradients());
  const auto report_finished_step = [&](int64_t step) {
    const StepResult result = rank.trainer->result(step);
    measured.loss.push_back(result.loss);
    measured.gradient_norm.push_back(result.gradient_norm);
  };
  const int64_t steps = golden.config.train.steps;
  for (int64_t step = 1; step <= steps; ++step) {
    rank.trainer->step(step, rank.reader(step, read), false);
    if (step > 1) report_finished_step(step - 1);
  }
  report_finished_step(steps);
  collect(set, masters_of, measured.final, mutex);
  return measured;
}

// In float64.
inline void expect_agrees_to_1e10(const Measured& measured, const Golden& golden) {
  ASSERT_EQ(measured.gradient.size(), golden.gradient.size());
  for (const auto& [name, expected] : golden.gradient) {
    EXPECT_LE(relative_difference(measured.gradient.at(name), expected), 1e-10) << name;
  }
  for (const auto& [name, expected] : golden.final) {
    EXPECT_LE(relative_difference(measured.final.at(name), expected), 1e-10) << name;
  }
  for (size_t i = 0; i < golden.loss.size(); ++i) {
    EXPECT_NEAR(measured.loss[i] / golden.loss[i], 1, 1e-10) << "step " << i + 1;
    EXPECT_NEAR(measured.gradient_norm[i] / golden.gradient_norm[i], 1, 1e-10) << "step " << i + 1;
  }
}

}  // namespace shiftron::testing
