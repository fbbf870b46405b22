// Training steps on request, for comparisons: the model's configuration is read as `shiftron train` reads it.
//   train_steps OPTIONS --describe          prints configuration, parameters and learning rates as one JSON line
//   train_steps OPTIONS --inputs FILE.h5    reads "run K" lines, answers {"seconds": of one, "losses": [K of them]}
//   train_steps OPTIONS --compare-shift     time of a step with the configured KV shift against one without any shift:
//                                           two trainers, --pairs N steps of each in turn
//   train_steps OPTIONS --profile [--json]  where the time of --steps N steps goes, kernel by kernel
// FILE.h5 holds /initial/NAME, /ids, /targets and /document_starts as tests/reference/README.md states; its batches are
// read cyclically.
#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/config_reader.h"
#include "cli/process.h"
#include "config/config_text.h"
#include "config/learning_rate.h"
#include "config/validate.h"
#include "core/hdf5_file.h"
#include "local_trainer.h"
#include "program.h"
#include "train/profile.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

using nlohmann::json;

constexpr int64_t kValuesAtOnce = 1 << 17;
constexpr int64_t kDescribedRates = 1000;  // learning rates that --describe prints

// ---- --describe -----------------------------------------------------------------------------------------------------

json describe(const RunConfig& config, int threads) {
  Ledger ledger;
  Stream stream{.device = DeviceKind::meta, .ledger = &ledger, .cpu = {.threads = threads}};
  const auto world = make_meta_world(0, 1);
  Trainer trainer(config, make_groups(*world, make_layout(config.parallel, 1), config.model.kv_heads), stream, {});
  json parameters = json::array(), rates = json::array();
  for (const auto& parameter : trainer.engine().parameters().parameters()) {
    const ParameterSpec& spec = parameter->spec;
    json shape = json::array();
    for (int dim = 0; dim < spec.shape.dims(); ++dim) shape.push_back(spec.shape[dim]);
    const double decay = spec.group == DecayGroup::matrix  ? config.optimizer.weight_decay
                         : spec.group == DecayGroup::shift ? config.optimizer.shift_weight_decay
                                                           : 0;
    parameters.push_back({{"name", spec.name}, {"shape", shape}, {"weight_decay", decay}});
  }
  for (int64_t step = 1; step <= kDescribedRates; ++step) {
    rates.push_back(learning_rate(config.optimizer, config.train.steps, step));
  }
  return {{"configuration", json::parse(to_json(config))},
          {"threads", threads},
          {"parameters", parameters},
          {"learning_rates", rates}};
}

// What the process holds now, in bytes.
int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmRSS:") continue;
    int64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

// ---- --inputs -------------------------------------------------------------------------------------------------------

// By few values, since the memory that this takes is measured.
void assign_initial(ParameterSet& set, const Hdf5File& file) {
  for (const auto& parameter : set.parameters()) {
    const std::string name = "initial/" + parameter->spec.name;
    const int64_t rows = parameter->box.extent[0], row = parameter->box.extent.count() / rows;
    const uint64_t bytes = static_cast<uint64_t>(rows * row) * sizeof(float);
    if (file.info(name).byte_size != bytes) {
      throw_bad_input(file.path(), ": ", name, " has ", file.info(name).byte_size, " bytes, the model ", bytes);
    }
    const int64_t rows_at_once = std::max<int64_t>(1, kValuesAtOnce / row);
    std::vector<float> values(static_cast<size_t>(rows_at_once * row));
    for (int64_t at = 0; at < rows; at += rows_at_once) {
      const int64_t count = std::min(rows_at_once, rows - at);
      file.read_range(name, at, count, values.data());
      set.write(*parameter, ParameterState::master, at * row, count * row, values.data());
    }
  }
}

void serve(const RunConfig& config, int threads, const std::string& path) {
  if (config.train.precision == Precision::fp64) throw_bad_input("--inputs is for train.precision fp32 and bf16");
  const int64_t start_bytes = resident_bytes();
  LocalTrainer trainer(config, threads);
  std::vector<int32_t> ids, targets;
  std::vector<uint8_t> starts;
  {
    const Hdf5File file = Hdf5File::open(path);
    assign_initial(trainer.parameters(), file);
    ids = file.read_all<int32_t>("ids", Hdf5Type::i32);
    targets = file.read_all<int32_t>("targets", Hdf5Type::i32);
    starts = file.read_all<uint8_t>("document_starts", Hdf5Type::u8);
  }
  const int64_t rows = static_cast<int64_t>(ids.size());
  const int64_t count = config.train.micro_batch * config.train.sequence_length;
  if (rows == 0 || rows % (config.train.global_batch * config.train.sequence_length) != 0 ||
      targets.size() != ids.size() || starts.size() != ids.size()) {
    throw_bad_input(path, ": ids, targets and document_starts must hold whole batches of ", config.train.global_batch,
                    " x ", config.train.sequence_length);
  }
  const auto read = [&](int64_t first_sample, HostBatch& batch) {
    const int64_t first = first_sample * config.train.sequence_length % rows;
    std::copy_n(ids.begin() + first, count, batch.ids.begin());
    std::copy_n(targets.begin() + first, count, batch.targets.begin());
    std::copy_n(starts.begin() + first, count, batch.document_starts.begin());
  };
  trainer.choose(read);
  std::cout << json{{"ready", true}, {"start_bytes", start_bytes}, {"memory_bytes", trainer.ledger().memory()}}
            << std::endl;
  std::string word;
  int64_t steps = 0;
  while (std::cin >> word >> steps) {
    if (word != "run") throw_bad_input("'", word, "' is no command; say: run K");
    const LocalTrainer::Steps done = trainer.steps(steps, read);
    std::cout << json{{"seconds", done.seconds}, {"losses", done.losses}} << std::endl;
  }
}

// ---- --compare-shift ------------------------------------------------------------------------------------------------

// A 95 % interval of the median needs as many.
constexpr int64_t kLeastPairs = 6;

// That interval: order statistics, since the number of values below the median is binomial. values: kLeastPairs at
// least.
std::pair<double, double> median_interval(std::vector<double> values) {
  std::ranges::sort(values);
  const boost::math::binomial below(static_cast<double>(values.size()), 0.5);
  const auto rank = static_cast<size_t>(boost::math::quantile(below, 0.025));  // rounded outwards
  return {values[rank], values[values.size() - 1 - rank]};
}

json compare_shift(const RunConfig& config, int threads, int64_t pairs) {
  if (most_previous_tokens(config.model.shift) == 0) {
    throw_bad_input("--compare-shift needs a configuration with a shift; leave vanilla.conf out");
  }
  RunConfig vanilla = config;
  vanilla.model.shift.query = vanilla.model.shift.key = vanilla.model.shift.value = 0;
  LocalTrainer without(vanilla, threads), with(config, threads);
  const SampleReader read = random_samples(config);
  without.warm_up(read);
  with.warm_up(read);
  std::vector<double> plain, shifted, overhead;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (pair % 2 == 0) {  // each goes first in every other pair
      plain.push_back(without.step(read));
      shifted.push_back(with.step(read));
    } else {
      shifted.push_back(with.step(read));
      plain.push_back(without.step(read));
    }
    overhead.push_back(shifted.back() / plain.back() - 1);
  }
  const auto [low, high] = median_interval(overhead);
  return {{"precision", to_string(config.train.precision)},
          {"threads", threads},
          {"pairs", pairs},
          {"seconds_without", median(plain)},
          {"seconds_with", median(shifted)},
          {"overhead", median(overhead)},
          {"interval_95", {low, high}}};
}

// ---- --profile ------------------------------------------------------------------------------------------------------

json to_json(const Ledger& ledger, int64_t steps, double step_seconds, const MachineRates& rates) {
  json kernels = json::object();
  for (const auto& [name, cost] : ledger.sums()) {
    if (cost.seconds <= 0) continue;
    const auto count = static_cast<double>(steps);
    kernels[name] = {{"calls", cost.calls / count},
                     {"seconds", cost.seconds / count},
                     {"bytes", cost.bytes / count},
                     {"operations", cost.operations / count}};
  }
  return {{"steps", steps},
          {"step_seconds", step_seconds},
          {"peak_operations", rates.operations},
          {"peak_bytes", rates.bytes},
          {"kernels", kernels}};
}

// As a table, or JSON.
std::string profile(const RunConfig& config, int threads, int64_t steps, bool as_json) {
  LocalTrainer trainer(config, threads);
  const SampleReader read = random_samples(config);
  trainer.warm_up(read);
  trainer.start_profile();
  const double seconds = trainer.steps(steps, read).seconds;
  const Ledger& ledger = trainer.ledger();
  return as_json ? to_json(ledger, steps, seconds, trainer.rates()).dump()
                 : profile_table(ledger, steps, seconds, trainer.rates());
}

int run(const std::vector<std::string>& arguments) {
  const cli::ParsedConfig parsed = cli::parse_config(
      arguments, {cli::flag("describe", "print the configuration and the parameters as JSON"),
                  cli::text_option("inputs", "FILE", "weights and batches (.h5); steps run on command"),
                  cli::flag("compare-shift", "time steps with and without the KV shift"),
                  cli::integer_option("pairs", "of --compare-shift", at_least(kLeastPairs), "50"),
                  cli::flag("profile", "time every kernel"), cli::flag("json", "print the profile as JSON"),
                  cli::integer_option("steps", "of --profile", at_least(1), "5")});
  if (parsed.help) {
    std::cout
        << "train_steps --config FILE [--KEY VALUE]… (--describe | --inputs FILE.h5 | --compare-shift [--pairs N] "
           "| --profile [--steps N] [--json])\n";
    return 0;
  }
  RunConfig config = parsed.config;
  validate(config, 1, Use::dry_run);
  resolve(config);
  const int threads = cli::thread_count(config.device.threads);
  if (parsed.has("describe")) {
    std::cout << describe(config, threads) << std::endl;
  } else if (parsed.has("compare-shift")) {
    std::cout << compare_shift(config, threads, parsed.integer("pairs")) << std::endl;
  } else if (parsed.has("profile")) {
    std::cout << profile(config, threads, parsed.integer("steps"), parsed.has("json")) << std::endl;
  } else if (parsed.has("inputs")) {
    serve(config, threads, parsed.text("inputs"));
  } else {
    throw_bad_input("say what to do: --describe, --inputs FILE.h5, --compare-shift or --profile");
  }
  return 0;
}

}  // namespace
}  // namespace shiftron

int main(int argc, char** argv) {
  return shiftron::run_program("train_steps", shiftron::run, argc, argv);
}
