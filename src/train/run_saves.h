// RunSaves: the steps that a run saves, and what became of them.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/content.h"
#include "checkpoint/save.h"
#include "checkpoint/steps.h"
#include "config/run_config.h"
#include "parallel/parameter.h"
#include "run/run_files.h"
#include "train/run_environment.h"

namespace shiftron {

// Throws if another start has taken over the run's directory, which rank 0 locks. Removing the directory or its lock by
// hand does not end the run.
void require_lock_held(const RunEnvironment& environment);

class RunSaves {
 public:
  RunSaves(const RunConfig& config, const RunEnvironment& environment) : config_(config), environment_(environment) {}

  // Whether the configuration wants the step to be saved.
  bool is_wanted_after(int64_t step) const;
  // Every rank calls it. A save that fails is logged, written into the events, and in the result; the run continues.
  // `is_stopping`: only for the message of that case.
  SaveResult save(const CheckpointContent& content, const ParameterSet& parameters, bool is_stopping,
                  SaveOptions options);
  // What has been loaded is also saved.
  void set_newest(int64_t step) { newest_ = step; }
  int64_t newest() const { return newest_; }  // -1: none
  bool last_failed() const { return last_failed_; }
  // "all steps", "everything after step 100": what a start would repeat.
  std::string unsaved_steps() const;
  // Removes what the retention does not keep; for rank 0 of a run whose save may have been killed before it did that.
  void remove_old_steps();
  std::string directory() const { return checkpoints_of(config_.output.directory); }

 private:
  Retention retention();

  const RunConfig& config_;
  const RunEnvironment& environment_;
  KnownSteps known_steps_;  // rank 0's
  int64_t newest_ = -1;
  bool last_failed_ = false;
};

}  // namespace shiftron
