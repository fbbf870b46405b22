// What the process provides to a training run.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "core/directory_lock.h"
#include "core/host.h"
#include "core/log.h"
#include "parallel/host_communicator.h"
#include "parallel/watchdog.h"
#include "run/run_files.h"
#include "train/step_evaluation.h"

namespace shiftron {

// What the process provides to a run.
struct RunEnvironment {
  HostCommunicator& world;
  HostShare share{};  // of this rank
  Log& log;
  Events& events;  // write nothing until the run's directory is locked
  Watchdog& watchdog;
  std::unique_ptr<DirectoryLock>& lock;    // of the run's directory; rank 0 takes it
  std::function<bool()> stop_requested{};  // asked once a step
  std::string code_version{};
  std::function<void(const std::string& line)> show_progress{};  // rank 0; empty = nothing is shown
  // When the process must have saved and exited; unset: never.
  std::optional<std::chrono::system_clock::time_point> end_time{};
  MakeStepEvaluation make_evaluation{};  // of evaluation.tasks
  bool profile = false;                  // time every kernel after the first step and log rank 0's table at the end
};

// Applies until the first step is done, and while MPI starts and ends.
Deadline setup_deadline(const RunConfig& config);

}  // namespace shiftron
