// RunEvaluation: the held-out losses and benchmarks of a run, every evaluation.every steps.
#pragma once

#include <cstdint>

#include "config/run_config.h"
#include "parallel/layout.h"
#include "parallel/watchdog.h"
#include "run/run_files.h"
#include "run/run_report.h"
#include "train/run_data.h"
#include "train/run_environment.h"
#include "train/run_stop.h"
#include "train/step_evaluation.h"
#include "train/trainer.h"

namespace shiftron {

// What a run evaluates with; all of it must outlive the evaluation.
struct EvaluatedRun {
  const RunConfig& config;
  const RunEnvironment& environment;
  const ParallelLayout& layout;
  Trainer& trainer;
  RunReport& report;
  RunStop& stop;
};

class RunEvaluation {
 public:
  // `validation` and `tasks`: null if the run has none.
  RunEvaluation(const EvaluatedRun& run, Loader* validation, StepEvaluation* tasks)
      : run_(run), validation_(validation), tasks_(tasks) {}

  bool is_wanted_after(int64_t step) const;
  // Evaluates the weights after `step`. If the run is to stop, the rest waits for the next start.
  void evaluate(int64_t step) { evaluate(step, all()); }
  // Completes the evaluation of the step that this start resumes from, if a stop or a kill cut it off: metrics.jsonl
  // lacks its rows. If training is to follow, an evaluation that does not fit between two stops is left out for good,
  // so that the run makes progress. The last step's is never left out: the run is not done without it. `rows`: rank
  // 0's, of that step.
  void catch_up(int64_t step, const RowsOfStep& rows);
  // Whether the last evaluation was cut off.
  bool is_pending() const { return is_pending_; }

 private:
  struct Due {
    bool held_out = false, tasks = false;
  };
  Due all() const { return {.held_out = validation_ != nullptr, .tasks = tasks_ != nullptr}; }
  void evaluate(int64_t step, const Due& due);
  bool evaluate_held_out(int64_t step);
  bool evaluate_tasks(int64_t step);
  bool continues(Watchdog::Section& section);
  Deadline deadline() const { return {run_.config.fault.evaluation_deadline, "fault.evaluation_deadline"}; }
  bool first_rank() const { return run_.environment.world.rank() == 0; }

  EvaluatedRun run_;
  Loader* validation_;
  StepEvaluation* tasks_;
  bool is_pending_ = false;
};

}  // namespace shiftron
