// Reads only manifests.
#include "run/resume.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/steps.h"
#include "config/changed_keys.h"
#include "config/learning_rate.h"
#include "core/check.h"
#include "core/hash.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "run/saved_state.h"

namespace shiftron {

bool promised_to_keep(const Manifest& manifest) {
  const int64_t every = saved_config(manifest.state_json, "checkpoint").checkpoint.keep_every;
  return every > 0 && manifest.step % every == 0;
}

std::optional<int64_t> step_to_resume(const RunConfig& config, const std::string& checkpoints, Log& log) {
  const ResumeChoice& choice = config.checkpoint.resume;
  const bool goes_back = choice.kind == ResumeChoice::Kind::step;
  for (const StepDirectory& entry : list_steps(checkpoints)) {
    SavedState saved;
    try {
      saved = saved_state(read_manifest(entry.path).state_json, entry.path);
    } catch (const SystemError& error) {  // only this step says whether checkpoint.resume has been done already
      throw SystemError(unreadable_step(entry.path, error.what()));
    } catch (const Error&) {
      continue;  // reported when loading tries it
    }
    require_resumable(saved.configuration, config, !saved.imported_from.empty(), entry.path);
    const ResumeChoice& before = saved.configuration.checkpoint.resume;
    if (goes_back && entry.step > choice.step && before.kind == choice.kind && before.step == choice.step) {
      log.info(
          fmt::format("checkpoint.resume={} already took effect: step {} was saved after it, and training resumes "
                      "there; to go back again, rename {} and everything else newer than step {}",
                      choice.step, entry.step, entry.path, choice.step));
      return {};
    }
    break;
  }
  return goes_back ? std::optional(choice.step) : std::nullopt;
}

std::string non_finite_advice(const RunConfig& config, const std::string& checkpoints, int64_t last_good) {
  std::string options =
      fmt::format("--config {} --optimizer.learning_rate {:g}", shell_word(config.output.directory + "/config.conf"),
                  config.optimizer.learning_rate / 2);
  if (config.checkpoint.resume.kind != ResumeChoice::Kind::automatic) options += " --checkpoint.resume auto";
  if (config.train.stop_at > 0) options += " --train.stop_at 0";
  std::string skipped;  // a saved step after last_good
  for (const StepDirectory& entry : list_steps(checkpoints)) {
    try {
      check_step(entry.path);
      if (entry.step > last_good) {
        skipped = entry.path;
        continue;
      }
      return "start a new run from this step or an earlier one, with a lower optimizer.learning_rate: " +
             new_run_from(entry.path, options);
    } catch (const Error&) {  // try an older one
    }
  }
  if (!skipped.empty()) {
    return fmt::format(
        "no earlier checkpoint exists, but {} has the parameters of step {}, because skipped steps do not change them: "
        "start a new run from it with a lower optimizer.learning_rate: {}",
        skipped, last_good, new_run_from(skipped, options));
  }
  return fmt::format(
      "no earlier checkpoint exists: start a new run with a lower optimizer.learning_rate: shiftron train {} "
      "--output.directory NEW",
      options);
}

void require_same_data(const std::vector<DataSource>& sources, int64_t step, const std::string& before,
                       const std::string& now) {
  if (before == now) return;
  const char* of_several = sources.size() > 1 ? "s, their order and their weights" : "";
  throw_bad_input("data.train: the data has changed since step ", step, " was saved (fingerprint ", before, ", now ",
                  now, "); restore the dataset", of_several, " (the path does not matter), or start a new run");
}

void require_tokenizer_of(const std::string& imported_from, const std::string& step_directory,
                          const CheckpointContent& content, const Loader& data, Log& log) {
  const std::string hash = data.tokenizer_hash();
  const std::string path = step_directory + "/" + content.tokenizer.file.name;
  if (!content.tokenizer.is_there()) {
    if (log.rank() == 0) {
      log.warning(imported_from +
                  " came without a tokenizer that this program can use, so nothing can check that data.train was built "
                  "with this model's tokenizer");
    }
    return;
  }
  if (to_hex(xxh3_128(content.tokenizer.file.bytes)) == hash) {
    const TokenizerSettings &before = content.tokenizer.settings, &now = data.tokenizer().settings;
    if (before == now || log.rank() != 0) return;
    log.warning("data.train was built with other choices about the tokenizer than the model imported from " +
                imported_from + " came with: " + words_of(now, data.end_of_document()) + "; before: " +
                words_of(before, before.end_of_document < 0 ? data.end_of_document() : before.end_of_document));
    return;
  }
  if (hash.empty()) {
    throw_bad_input("data.train has no tokenizer, but the model imported from ", imported_from,
                    " has one; build the data with it: shiftron data build --ids --tokenizer ", shell_word(path));
  }
  throw_bad_input("data.train was built with a different tokenizer than that of the model imported from ",
                  imported_from, "; build it with the checkpoint's tokenizer: shiftron data build --tokenizer ",
                  shell_word(path));
}

void warn_of_changed_schedule(const RunConfig& saved, const RunConfig& config, int64_t first_step, Log& log) {
  const OptimizerSection& optimizer = config.optimizer;
  const int64_t before = saved.train.steps, now = config.train.steps;
  if (before == now || optimizer.schedule == LearningRateSchedule::constant) return;
  const double was = learning_rate(optimizer, before, std::min(first_step, before));
  const double is = learning_rate(optimizer, now, first_step);
  // The last decay_steps of wsd move too, but a run that has not reached them continues as before.
  if (optimizer.decay_steps > 0 && (optimizer.schedule != LearningRateSchedule::wsd || was == is)) return;
  log.warning(fmt::format(
      "train.steps was {} and is now {}: optimizer.schedule={} with decay_steps={} depends on the end of the run, so "
      "the learning rate of step {} is {:.6g} instead of {:.6g}; train.steps={} keeps the schedule",
      before, now, to_string(optimizer.schedule), optimizer.decay_steps, first_step, is, was, before));
}

void warn_of_passed_stop(const TrainSection& train, int64_t saved_step, Log& log) {
  if (train.stop_at < 1 || train.stop_at > saved_step || saved_step >= train.steps) return;
  log.warning(
      fmt::format("train.stop_at={} is not after step {}, from which training resumes, so it runs to train.steps={}; "
                  "to stop earlier, set train.stop_at above {}",
                  train.stop_at, saved_step, train.steps, saved_step));
}

}  // namespace shiftron
