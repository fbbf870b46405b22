// One rank's run from start to end; called by run_training(). Its start is in training_start.cpp, its loop in
// train_run.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/content.h"
#include "checkpoint/steps.h"
#include "core/ledger.h"
#include "core/queue.h"
#include "core/stream.h"
#include "parallel/layout.h"
#include "parallel/watchdog.h"
#include "train/profile.h"
#include "train/run_files.h"
#include "train/run_report.h"
#include "train/saved_state.h"
#include "train/step_evaluation.h"
#include "train/time_limit.h"
#include "train/train_run.h"
#include "train/trainer.h"

namespace shiftron {

class TrainingRun {
 public:
  TrainingRun(const RunConfig& config, const RunEnvironment& environment);
  ExitCode run();

 private:
  // The start.
  void check_vocabulary() const;
  void open_directory();
  void write_start() const;
  bool resume();
  void rename_unusable_steps() const;
  void begin();
  void write_configuration() const;
  std::optional<CheckpointContent> load_step();
  void require_resumable_from(const CheckpointContent& content, const SavedState& state) const;
  void adopt_state(const CheckpointContent& content, const SavedState& state);
  void warn_of_changed_validation(int64_t step, const std::string& before) const;
  void adopt_products(const Bfloat16Products& products);
  void log_resume(const SavedState& state) const;
  void warn_of_validation() const;
  void warn_of_missing_steps() const;
  void initialise_parameters();
  void supersede(int64_t step);
  void announce() const;
  void choose_algorithms();
  void measure_peak();

  // The loop.
  void end_without_training();
  void report_finished_step();
  void warn_of_zero_gradient(int64_t step, const StepResult& result);
  void drain();
  struct DueEvaluation {
    bool held_out = false, tasks = false;
  };
  DueEvaluation all_evaluation() const { return {.held_out = validation_.has_value(), .tasks = tasks_ != nullptr}; }
  void evaluate(int64_t step, const DueEvaluation& due);
  bool evaluate_held_out(int64_t step);
  bool evaluate_tasks(int64_t step);
  void catch_up_on_evaluation();
  bool continues(Watchdog::Section& section);
  Watchdog::Section wait_for_files(const std::string& what);
  ExitCode end_after_stop(int64_t step);
  Retention retention();
  bool save(int64_t step);
  std::string unsaved_steps() const;
  void log_profile(int64_t step);
  bool wants_save(int64_t step) const;
  bool wants_evaluation(int64_t step) const;
  bool must_drain_after(int64_t step) const;
  TimeLimit::Due due_from(int64_t step) const;
  bool stop_requested(TimeLimit::Due due);
  int dp() const { return trainer_->engine().groups().at.dp; }
  bool first_rank() const { return environment_.world.rank() == 0; }
  std::string checkpoints() const { return config_.output.directory + "/checkpoints"; }

  const RunConfig& config_;
  const RunEnvironment& environment_;
  ParallelLayout layout_;
  std::optional<Loader> train_, validation_;
  Ledger ledger_;
  std::unique_ptr<Queue> queue_;  // the stream's, on a GPU
  Stream stream_;
  MemoryPlan plan_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<StepEvaluation> tasks_;
  RunReport report_;
  double peak_ = 0;     // operations per second of all ranks; NaN: not known
  MachineRates rates_;  // of this rank
  double profiled_seconds_ = 0;
  std::string validation_fingerprint_;
  std::string library_choices_;  // JSON; "": none
  ModelOrigin origin_;
  int64_t first_step_ = 1;  // of this process
  int64_t saved_step_ = -1;
  std::vector<std::pair<int64_t, std::string>> unusable_steps_;  // rank 0's: steps that the start rejected, and why
  int64_t zero_gradients_ = 0;                                   // rank 0's: steps of this process that had one
  int64_t unread_step_ = 0;  // handed to the device, but its result not read; 0: none
  StepDeadline automatic_;
  TimeLimit limit_;         // rank 0's; it stops all ranks
  KnownSteps known_steps_;  // rank 0's
  RowsOfStep rows_;         // rank 0's, of the step from which the run resumes
  bool last_save_failed_ = false;
  bool evaluation_pending_ = false;
  bool stop_ = false;
  bool limit_reported_ = false;
  std::optional<Watchdog::Inquiry> inquiry_;  // about the trainer
};

}  // namespace shiftron
