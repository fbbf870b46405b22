// Reads manifests alone.
#include "train/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/steps.h"
#include "core/check.h"
#include "train/learning_rate.h"

namespace shiftron {

RunConfig saved_config(const std::string& state_json, const std::string& source) {
  return config_from_json(nlohmann::json::parse(state_json).at("configuration").dump(), source);
}

bool was_to_stay(const Manifest& manifest) {
  const int64_t every = saved_config(manifest.state_json, "checkpoint").checkpoint.keep_every;
  return every > 0 && manifest.step % every == 0;
}

std::optional<int64_t> step_to_resume(const RunConfig& config, const std::string& checkpoints, Log& log) {
  const ResumeChoice& choice = config.checkpoint.resume;
  const bool goes_back = choice.kind == ResumeChoice::Kind::step;
  for (const StepDirectory& entry : list_steps(checkpoints)) {
    RunConfig saved;
    try {
      saved = saved_config(read_manifest(entry.path).state_json, entry.path);
    } catch (const Error&) {
      continue;  // told where it is tried
    }
    require_resumable(saved, config);
    const ResumeChoice& before = saved.checkpoint.resume;
    if (goes_back && entry.step > choice.step && before.kind == choice.kind && before.step == choice.step) {
      log.info(
          fmt::format("checkpoint.resume={} has been done: step {} was saved behind it, and training goes on from "
                      "there; to go back once more, rename {} and what else is newer than step {}",
                      choice.step, entry.step, entry.path, choice.step));
      return {};
    }
    break;
  }
  return goes_back ? std::optional(choice.step) : std::nullopt;
}

void require_same_data(const char* key, int64_t step, const std::string& before, const std::string& now) {
  if (before == now) return;
  throw_bad_input(key, ": the data has changed since step ", step, " was saved (fingerprint ", before, ", now ", now,
                  "); restore the dataset, wherever it lies, or start a new run");
}

void warn_of_new_end(const RunConfig& saved, const RunConfig& config, int64_t first_step, Log& log) {
  const OptimizerSection& optimizer = config.optimizer;
  const int64_t before = saved.train.steps, now = config.train.steps;
  if (before == now || optimizer.decay_steps > 0 || optimizer.schedule == LearningRateSchedule::constant) return;
  log.warning(fmt::format(
      "train.steps was {}, is {}: optimizer.schedule={} with decay_steps=0 follows the end of the run, so that step {} "
      "has the learning rate {:.6g}, it had {:.6g} before; train.steps={} keeps the curve",
      before, now, to_string(optimizer.schedule), first_step, learning_rate(optimizer, now, first_step),
      learning_rate(optimizer, before, std::min(first_step, before)), before));
}

}  // namespace shiftron
