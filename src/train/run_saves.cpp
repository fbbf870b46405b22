// Saves steps and reports what became of them.
#include "train/run_saves.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/check.h"
#include "core/trace_range.h"
#include "parallel/agree.h"
#include "run/resume.h"

namespace shiftron {

void require_lock_held(const RunEnvironment& environment) {
  if (!environment.lock || environment.lock->look() == DirectoryLock::Hold::held) return;
  if (!environment.events.another_process_started()) environment.lock->retake();
  if (environment.lock->look() == DirectoryLock::Hold::held) return;
  throw_crash(
      "another start has taken over the run's directory because this one gave no sign of life for a long time; this "
      "one stops writing, so that nothing of the new start is lost");
}

bool RunSaves::is_wanted_after(int64_t step) const {
  const int64_t every = config_.checkpoint.every;
  return step == config_.train.stop_at || step == config_.train.steps || (every > 0 && step % every == 0);
}

Retention RunSaves::retention() {
  return {.keep = config_.checkpoint.keep,
          .keep_every = config_.checkpoint.keep_every,
          .promised_to_keep = promised_to_keep,
          .known = &known_steps_};
}

SaveResult RunSaves::save(const CheckpointContent& content, const ParameterSet& parameters, bool is_stopping,
                          SaveOptions options) {
  run_on_all_ranks(environment_.world, [&] { require_lock_held(environment_); });
  options.before_commit = [this, before = std::move(options.before_commit)] {
    require_lock_held(environment_);
    if (before) before();
  };
  SaveResult result =
      save_checkpoint(directory(), content, parameters, environment_.world, retention(), environment_.log, options);
  last_failed_ = !result.saved;
  if (result.saved) newest_ = content.step;
  if (environment_.world.rank() != 0) return result;
  if (result.saved) {
    environment_.log.info(fmt::format("saved {} ({:.1f} MB, {:.2f} s)", result.directory,
                                      static_cast<double>(result.bytes) / 1e6, result.seconds));
    environment_.events.write("checkpoint",
                              {{"step", content.step}, {"bytes", result.bytes}, {"seconds", result.seconds}});
  } else {
    environment_.log.error(fmt::format("step {} could not be saved: {}{}", content.step, result.reason,
                                       is_stopping ? "" : "; training continues"));
    environment_.events.write("checkpoint_failed", {{"step", content.step}, {"reason", result.reason}});
  }
  return result;
}

std::string RunSaves::unsaved_steps() const {
  return newest_ < 0 ? "all steps" : fmt::format("everything after step {}", newest_);
}

void RunSaves::remove_old_steps() {
  apply_retention(directory(), retention(), newest_, environment_.log);
}

}  // namespace shiftron
