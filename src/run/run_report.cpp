// Writes the lines about steps.
#include "run/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/config_text.h"
#include "config/learning_rate.h"
#include "core/check.h"
#include "core/file.h"
#include "data/source_names.h"
#include "run/overflow.h"

namespace shiftron {
namespace {

nlohmann::ordered_json norms_json(const ModelConfig& model, const StepResult& result,
                                  const std::vector<std::string>& group_names) {
  nlohmann::ordered_json norms = nlohmann::ordered_json::object();
  for (size_t i = 0; i < group_names.size(); ++i) {
    if (group_names[i] == "head" && model.tie_embeddings) continue;
    norms[group_names[i]] = json_number(result.group_norms[i]);
  }
  return norms;
}

nlohmann::ordered_json taps_json(const StepResult& result) {
  static constexpr const char* kNames[] = {"query", "key", "value"};
  nlohmann::ordered_json shift = nlohmann::ordered_json::object();
  for (size_t layer = 0; layer < result.taps.size(); ++layer) {
    for (size_t stream = 0; stream < 3; ++stream) {
      if (result.taps[layer][stream].empty()) continue;
      shift[std::to_string(layer)][kNames[stream]] = result.taps[layer][stream];
    }
  }
  return shift;
}

// The name of a metric's standard error. A filter stays at the end: "exact_match_stderr,strict-match".
std::string error_name(const std::string& metric) {
  const size_t comma = std::min(metric.find(','), metric.size());
  return metric.substr(0, comma) + "_stderr" + metric.substr(comma);
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string thousands(int64_t value) {
  std::string text = std::to_string(value);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

RunReport::RunReport(const RunConfig& config, int64_t first_step, double peak, Log& log,
                     std::function<void(const std::string& line)> show_progress)
    : config_(&config),
      log_(&log),
      first_step_(first_step),
      peak_(peak),
      show_progress_(std::move(show_progress)),
      metrics_(config.output.directory + "/metrics.jsonl"),
      tensorboard_(config.output.directory + "/tensorboard", first_step) {}

void RunReport::step(int64_t step, const StepResult& result, const std::vector<std::string>& group_names,
                     const Ledger& ledger) {
  if (config_ == nullptr) return;
  const double step_seconds = result.seconds;
  const TimeSplit& times = result.times;
  const TrainSection& train = config_->train;
  const int64_t tokens = train.global_batch * train.sequence_length;
  const double rate = static_cast<double>(tokens) / step_seconds;
  const double rate_of_operations =
      model_flops(config_->model, static_cast<double>(tokens), result.attended) / step_seconds;
  if (rate_of_operations > peak_) peak_ = std::nan("");  // measured next to other work: shares of it mean nothing
  const double utilization = rate_of_operations / peak_;
  const double rate_used = learning_rate(config_->optimizer, train.steps, step);
  const double compute = std::max(0.0, step_seconds - times.communication - times.wait - times.data);
  write({{"step", step},
         {"tokens", step * tokens},
         {"loss", json_number(result.loss)},
         {"accuracy", json_number(result.accuracy)},
         {"gradient_norm", json_number(result.gradient_norm)},
         {"learning_rate", rate_used},
         {"tokens_per_second", rate},
         {"step_seconds", step_seconds},
         {"model_flops_utilization", json_number(utilization)},
         {"memory_bytes", ledger.memory()},
         {"time_seconds",
          {{"compute", compute}, {"communication", times.communication}, {"wait", times.wait}, {"data", times.data}}},
         {"layer_gradient_norms", norms_json(config_->model, result, group_names)},
         {"shift", taps_json(result)},
         {"skipped", result.skipped_updates}});
  if (!show_progress_ || (step % config_->output.log_every != 0 && step != train.steps)) return;
  // Uses the steps' own clock: if the host computes steps itself, the next one is done before this one is reported.
  const auto done = static_cast<double>(step - first_step_ + 1);
  const double left = result.elapsed / done * static_cast<double>(train.steps - step);
  const std::string share = std::isnan(utilization) ? "" : fmt::format("MFU {:.0f} %  ", utilization * 100);
  show_progress_(fmt::format("step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {} tokens/s  {}{} left", step,
                             train.steps, result.loss, result.gradient_norm, rate_used,
                             thousands(static_cast<int64_t>(rate)), share, duration_text(left)));
}

void RunReport::validation(int64_t step, const EvaluationResult& result) {
  if (config_ == nullptr) return;
  const MeanLoss& all = result.all;
  const std::vector<std::string> names = source_names(config_->data.validation);
  nlohmann::ordered_json row = {
      {"step", step}, {"validation_loss", json_number(all.loss)}, {"validation_accuracy", json_number(all.accuracy)}};
  for (size_t i = 0; i < result.sources.size(); ++i) {
    const MeanLoss& of = result.sources[i];
    row["validation_sources"][names[i]] = {{"loss", json_number(of.loss)}, {"accuracy", json_number(of.accuracy)}};
  }
  write(row);  // before any log line about it
  log_->info(fmt::format("step {}: validation loss {:.4f}, accuracy {:.4f}", step, all.loss, all.accuracy));
  for (size_t i = 0; i < result.sources.size(); ++i) {
    const MeanLoss& of = result.sources[i];
    log_->info(of.counted == 0
                   ? fmt::format("step {}: the evaluated windows of {} have no counted target", step, names[i])
                   : fmt::format("step {}: validation loss of {} {:.4f}, accuracy {:.4f}", step, names[i], of.loss,
                                 of.accuracy));
  }
  if (are_logits_equal(all.loss, config_->model.vocab))
    log_->warning(fmt::format("step {}: {}", step, kLogitsAreEqual));
}

void RunReport::tasks(int64_t step, const std::vector<StepValue>& values) {
  if (config_ == nullptr) return;
  nlohmann::ordered_json tasks = nlohmann::ordered_json::object();
  for (const StepValue& value : values) {
    tasks[value.task][value.metric] = json_number(value.value);
    if (value.error) tasks[value.task][error_name(value.metric)] = json_number(*value.error);
    log_->info(fmt::format("step {}: {} {} {:.4f}{}", step, value.task, value.metric, value.value,
                           value.error ? fmt::format(" ± {:.4f}", *value.error) : ""));
  }
  write({{"step", step}, {"benchmarks", tasks}});
}

RunReport::~RunReport() {
  if (!metrics_.waits()) return;
  try {
    metrics_.flush();
  } catch (const std::exception& error) {
    log_->warning(fmt::format("{}; the lines waiting to be written are lost", error.what()));
  }
}

// A full disk does not end a run: lines wait until there is room again.
void RunReport::sync() {
  if (config_ == nullptr) return;
  try {
    const std::string configuration = config_->output.directory + "/config.conf";
    if (!std::filesystem::exists(configuration)) {
      log_->warning(configuration + " was moved or removed; it is written again");
      write_file_durably(configuration, to_config_text(*config_));
    }
    metrics_.sync();
  } catch (const std::exception& error) {
    log_->warning(fmt::format("{}; after a power failure, lines of metrics.jsonl may be missing", error.what()));
  }
}

void RunReport::write(const nlohmann::ordered_json& line) {
  const auto step = line.at("step").get<int64_t>();
  tensorboard_.write(step, scalars_of(line));
  const int64_t dropped = metrics_.dropped();
  metrics_.add(line);
  try {
    if (metrics_.follow() && !std::exchange(move_reported_, true)) {
      log_->warning(
          fmt::format("{}/metrics.jsonl was moved or replaced: lines from step {} on go to a file at this path, "
                      "earlier lines are in the file that was moved",
                      config_->output.directory, step));
    }
    metrics_.flush();
    if (std::exchange(lines_waiting_, false)) log_->info("the waiting lines of metrics.jsonl have been written");
  } catch (const std::exception& error) {
    if (!std::exchange(lines_waiting_, true)) {
      log_->warning(
          fmt::format("{}; lines of metrics.jsonl from step {} on wait until it can be written", error.what(), step));
    }
  }
  if (dropped == 0 && metrics_.dropped() > 0) {
    log_->warning(fmt::format(
        "lines of metrics.jsonl from step {} on are lost until it can be written: {} bytes are already waiting", step,
        JsonLines::kMostWaiting));
  }
}

}  // namespace shiftron
