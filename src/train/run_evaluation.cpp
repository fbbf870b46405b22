// Evaluates within a run; a stop cuts it off.
#include "train/run_evaluation.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/trace_range.h"
#include "train/batches.h"

namespace shiftron {

bool RunEvaluation::is_wanted_after(int64_t step) const {
  const int64_t every = run_.config.evaluation.every;
  return every > 0 && (step % every == 0 || step == run_.config.train.steps);
}

void RunEvaluation::evaluate(int64_t step, const Due& due) {
  const auto start = std::chrono::steady_clock::now();
  const bool held_out = !due.held_out || evaluate_held_out(step);
  const bool done = held_out && (!due.tasks || evaluate_tasks(step));
  run_.stop.limit.add_evaluation(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  is_pending_ = !done;
  if (done || !first_rank()) return;
  run_.environment.log.warning(fmt::format("step {}: its {} left for the next start, because the run is stopping", step,
                                           held_out ? "benchmarks are" : "evaluation is"));
  run_.environment.events.write(kEvaluationLeft, {{"step", step}});
}

// False if the run is to stop. Every rank asks equally often.
bool RunEvaluation::continues(Watchdog::Section& section) {
  const bool stops = run_.stop.is_wanted_anywhere();
  section.renew();
  return !stops;
}

bool RunEvaluation::evaluate_held_out(int64_t step) {
  Watchdog::Section section = run_.environment.watchdog.enter(fmt::format("evaluation at step {}", step), deadline());
  const int dp = run_.trainer.engine().groups().at.dp;
  const BatchReader read = evaluation_batches(run_.config, run_.layout, dp, *validation_);
  const BatchReader read_in_time = [&](int index, HostBatch& batch) {
    section.renew();
    read(index, batch);
  };
  const std::optional<EvaluationResult> result = run_.trainer.evaluate(
      evaluation_microbatches(run_.config, run_.layout, *validation_), read_in_time, [&] { return continues(section); },
      [&](int index) { return evaluated_sources(run_.config, run_.layout, dp, *validation_, index); });
  if (result) run_.report.validation(step, *result);
  return result.has_value();
}

bool RunEvaluation::evaluate_tasks(int64_t step) {
  const TraceRange range("benchmarks");
  Watchdog::Section section = run_.environment.watchdog.enter(fmt::format("benchmarks at step {}", step), deadline());
  const std::optional<std::vector<StepValue>> values = tasks_->evaluate(
      step, {.each_batch = [&] { section.renew(); }, .keep_going = [&] { return continues(section); }});
  if (values && first_rank()) run_.report.tasks(step, *values);
  return values.has_value();
}

void RunEvaluation::catch_up(int64_t step, const RowsOfStep& rows) {
  constexpr int64_t kMostTries = 2;  // the first was during training
  const int64_t last_step = run_.config.train.steps;
  if (step < 1 || step > last_step || !is_wanted_after(step)) return;
  Due due = all();
  if (first_rank()) {
    Log& log = run_.environment.log;
    due = {.held_out = due.held_out && rows.loss && !rows.validation,
           .tasks = due.tasks && rows.loss && !rows.benchmarks};
    if ((due.held_out || due.tasks) && step < last_step &&
        count_interrupted_evaluations(run_.config.output.directory, step) >= kMostTries) {
      log.warning(fmt::format("step {}: its evaluation was interrupted {} times and is skipped", step, kMostTries));
      due = {};
    }
    if (due.held_out || due.tasks) log.info(fmt::format("step {}: completing its evaluation", step));
  }
  const std::string due_text =
      run_.environment.world.broadcast_text(fmt::format("{:d}{:d}", due.held_out, due.tasks), 0);
  due = {.held_out = due_text[0] == '1', .tasks = due_text[1] == '1'};
  if (due.held_out || due.tasks) evaluate(step, due);
}

}  // namespace shiftron
