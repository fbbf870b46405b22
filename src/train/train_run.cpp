// The loop around Trainer::step.
#include "train/train_run.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/save.h"
#include "core/event.h"
#include "core/trace_range.h"
#include "kernels/choose_products.h"
#include "kernels/kernels.h"
#include "parallel/agree.h"
#include "train/batches.h"
#include "train/device.h"
#include "train/overflow.h"
#include "train/profile.h"
#include "train/resume.h"
#include "train/saved_state.h"
#include "train/training_run.h"

namespace shiftron {
namespace {

// Throws if another start has taken over the run's directory, which rank 0 locks. Removing the directory or its lock by
// hand does not end the run.
void require_lock_held(const RunEnvironment& environment) {
  if (!environment.lock || environment.lock->look() == DirectoryLock::Hold::held) return;
  if (!environment.events.another_process_started()) environment.lock->retake();
  if (environment.lock->look() == DirectoryLock::Hold::held) return;
  throw_crash(
      "another start has taken over the run's directory because this one gave no sign of life for a long time; this "
      "one stops writing, so that nothing of the new start is lost");
}

}  // namespace

// If the run is to stop, the rest of the evaluation waits for the next start.
void TrainingRun::evaluate(int64_t step, const DueEvaluation& due) {
  const auto start = std::chrono::steady_clock::now();
  const bool held_out = !due.held_out || evaluate_held_out(step);
  const bool done = held_out && (!due.tasks || evaluate_tasks(step));
  limit_.add_evaluation(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  evaluation_pending_ = !done;
  if (done || !first_rank()) return;
  environment_.log.warning(fmt::format("step {}: its {} left for the next start, because the run is stopping", step,
                                       held_out ? "benchmarks are" : "evaluation is"));
  environment_.events.write(kEvaluationLeft, {{"step", step}});
}

// False if the run is to stop. Every rank asks equally often.
bool TrainingRun::continues(Watchdog::Section& section) {
  const bool wanted = stop_ || stop_requested({});
  stop_ = !joined_texts(environment_.world, wanted ? "1" : "").empty();
  section.renew();
  return !stop_;
}

bool TrainingRun::evaluate_held_out(int64_t step) {
  Watchdog::Section section = environment_.watchdog.enter(
      fmt::format("evaluation at step {}", step), {config_.fault.evaluation_deadline, "fault.evaluation_deadline"});
  const BatchReader read = evaluation_batches(config_, layout_, dp(), *validation_);
  const BatchReader read_in_time = [&](int index, HostBatch& batch) {
    section.renew();
    read(index, batch);
  };
  const std::optional<EvaluationResult> result = trainer_->evaluate(
      evaluation_microbatches(config_, layout_, *validation_), read_in_time, [&] { return continues(section); },
      [&](int index) { return evaluated_sources(config_, layout_, dp(), *validation_, index); });
  if (result) report_.validation(step, *result);
  return result.has_value();
}

bool TrainingRun::evaluate_tasks(int64_t step) {
  const TraceRange range("benchmarks");
  Watchdog::Section section = environment_.watchdog.enter(
      fmt::format("benchmarks at step {}", step), {config_.fault.evaluation_deadline, "fault.evaluation_deadline"});
  const std::optional<std::vector<StepValue>> values = tasks_->evaluate(
      step, {.each_batch = [&] { section.renew(); }, .keep_going = [&] { return continues(section); }});
  if (values && first_rank()) report_.tasks(step, *values);
  return values.has_value();
}

// Completes the evaluation of the step that this start resumes from, if a stop or a kill cut it off: metrics.jsonl
// lacks its rows. If training is to follow, an evaluation that does not fit between two stops is left out for good, so
// that the run makes progress. The last step's is never left out: the run is not done without it.
void TrainingRun::catch_up_on_evaluation() {
  constexpr int64_t kMostTries = 2;  // the first was during training
  const int64_t step = first_step_ - 1;
  if (step < 1 || step > config_.train.steps || !wants_evaluation(step)) return;
  DueEvaluation due = all_evaluation();
  if (first_rank()) {
    due = {.held_out = due.held_out && rows_.loss && !rows_.validation,
           .tasks = due.tasks && rows_.loss && !rows_.benchmarks};
    if ((due.held_out || due.tasks) && step < config_.train.steps &&
        count_interrupted_evaluations(config_.output.directory, step) >= kMostTries) {
      environment_.log.warning(
          fmt::format("step {}: its evaluation was interrupted {} times and is skipped", step, kMostTries));
      due = {};
    }
    if (due.held_out || due.tasks) {
      environment_.log.info(fmt::format("step {}: completing its evaluation", step));
    }
  }
  const std::string due_text = environment_.world.broadcast_text(fmt::format("{:d}{:d}", due.held_out, due.tasks), 0);
  due = {.held_out = due_text[0] == '1', .tasks = due_text[1] == '1'};
  if (due.held_out || due.tasks) evaluate(step, due);
}

Watchdog::Section TrainingRun::wait_for_files(const std::string& what) {
  return environment_.watchdog.enter_file_wait(what, {config_.fault.read_deadline, "fault.read_deadline"});
}

Retention TrainingRun::retention() {
  return {.keep = config_.checkpoint.keep,
          .keep_every = config_.checkpoint.keep_every,
          .promised_to_keep = promised_to_keep,
          .known = &known_steps_};
}

bool TrainingRun::save(int64_t step) {
  if (saved_step_ == step) return true;
  const TraceRange range("save");
  auto section = environment_.watchdog.enter(fmt::format("saving step {}", step),
                                             {config_.fault.checkpoint_deadline, "fault.checkpoint_deadline"});
  run_on_all_ranks(environment_.world, [&] { require_lock_held(environment_); });
  const SavedState state = {.configuration = config_,
                            .trainer = trainer_->state(),
                            .consumed_samples = step * config_.train.global_batch,
                            .validation_fingerprint = validation_fingerprint_,
                            .bfloat16 = chooses_products(config_) ? std::optional(stream_.cpu.bfloat16) : std::nullopt,
                            .library_choices = library_choices_,
                            .imported_from = "",
                            .without_tokenizer = train_->tokenizer_bytes().empty()
                                                     ? "its data.train has none; build the data with --tokenizer FILE"
                                                     : "",
                            .origin = origin_};
  const CheckpointContent content{.step = step,
                                  .configuration = to_config_text(config_),
                                  .state_json = to_json(state),
                                  .tokenizer_model = train_->tokenizer_bytes(),
                                  .data_fingerprint = train_->fingerprint(),
                                  .code_version = environment_.code_version};
  SaveOptions options{.threads = stream_.cpu.threads};
  options.before_commit = [&] {
    require_lock_held(environment_);
    report_.sync();
  };
  options.committed = [&] { section.renew(); };
  const SaveResult result = save_checkpoint(checkpoints(), content, trainer_->engine().parameters(), environment_.world,
                                            retention(), environment_.log, options);
  last_save_failed_ = !result.saved;
  if (result.saved) saved_step_ = step;
  limit_.add_save(result.seconds);
  if (!first_rank()) return result.saved;
  if (result.saved) {
    environment_.log.info(fmt::format("saved {} ({:.1f} MB, {:.2f} s)", result.directory,
                                      static_cast<double>(result.bytes) / 1e6, result.seconds));
    environment_.events.write("checkpoint", {{"step", step}, {"bytes", result.bytes}, {"seconds", result.seconds}});
  } else {
    environment_.log.error(
        fmt::format("step {} could not be saved: {}{}", step, result.reason, stop_ ? "" : "; training continues"));
    environment_.events.write("checkpoint_failed", {{"step", step}, {"reason", result.reason}});
  }
  return result.saved;
}

// Reads and reports the result of the step that is under way, or was the last one.
void TrainingRun::report_finished_step() {
  const int64_t step = unread_step_;
  unread_step_ = 0;
  const StepResult result = trainer_->result(step);
  stop_ = stop_ || result.stop;
  automatic_.add(result.seconds);
  limit_.add_step(result.seconds);
  if (environment_.profile && step > first_step_) {
    profiled_seconds_ += result.seconds;
    ledger_.add_reached_times();
  }
  if (first_rank()) {
    const auto section =
        wait_for_files(fmt::format("writing the row of step {} into {}", step, config_.output.directory));
    require_lock_held(environment_);
    if (result.skipped) {
      environment_.log.warning(fmt::format("step {} was skipped: loss {}, gradient norm {}, {} counted targets", step,
                                           result.loss, result.gradient_norm, result.counted));
      environment_.events.write("skip", {{"step", step}});
    }
    warn_of_zero_gradient(step, result);
    report_.step(step, result, trainer_->group_names(), ledger_);
  }
  if (result.skipped_in_row < config_.fault.non_finite_in_row) return;
  // The other ranks end after rank 0, which reads saved steps to find the way out: with many ranks that takes seconds.
  run_on_first_rank(environment_.world, [&] {
    if (result.counted == 0) {
      throw_bad_input(result.skipped_in_row, " steps in a row had no counted target to learn from, the last is step ",
                      step,
                      "; use data.train with longer documents or more counted targets, raise train.global_batch, or "
                      "set data.document_reset=false");
    }
    const bool finite = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
    throw Error(fmt::format("{} steps in a row had {}, the last is step {}; {}", result.skipped_in_row,
                            finite ? fmt::format("a gradient norm whose square overflows in float32 (above {:.1e})",
                                                 kLargestNorm)
                                   : "a loss or gradient that is not finite",
                            step, non_finite_advice(config_, checkpoints(), step - result.skipped_in_row)),
                ExitCode::non_finite);
  });
}

// Warns of the first such step, then ever more rarely: all following ones may be like it.
void TrainingRun::warn_of_zero_gradient(int64_t step, const StepResult& result) {
  const std::string warning = zero_gradient_warning(step, result, trainer_->group_names(), config_.model);
  if (warning.empty() || !std::has_single_bit(static_cast<uint64_t>(++zero_gradients_))) return;
  environment_.log.warning(warning);
  environment_.events.write("zero_gradient", {{"step", step}, {"reason", warning}});
}

// Afterwards no step is under way, and all are reported.
void TrainingRun::drain() {
  if (unread_step_ > 0) report_finished_step();
}

void TrainingRun::log_profile(int64_t step) {
  const int64_t steps = step - first_step_;
  if (!environment_.profile || !first_rank() || steps < 1) return;
  finish(stream_);
  ledger_.add_reached_times();
  environment_.log.info("kernels of rank 0, per step, evaluations included:\n" +
                        profile_table(ledger_, steps, profiled_seconds_ / static_cast<double>(steps), rates_));
  if (chooses_products(config_)) {
    environment_.log.info("bfloat16 matrix products: " + text_of(stream_.cpu.bfloat16));
  }
}

bool TrainingRun::wants_save(int64_t step) const {
  const int64_t every = config_.checkpoint.every;
  return step == config_.train.stop_at || step == config_.train.steps || (every > 0 && step % every == 0);
}

bool TrainingRun::wants_evaluation(int64_t step) const {
  const int64_t every = config_.evaluation.every;
  return every > 0 && (step % every == 0 || step == config_.train.steps);
}

// Whether the run was asked to stop, or there is only just time left for that. `due`: work before the stop can take
// effect.
bool TrainingRun::stop_requested(TimeLimit::Due due) {
  if (environment_.stop_requested()) return true;
  const auto now = TimeLimit::Clock::now();
  if (!limit_.is_up(now, due)) return false;
  if (!limit_reported_) {
    limit_reported_ = true;
    environment_.log.info(
        fmt::format("{:.0f} s of the allocation are left, and stopping may need {:.0f} s: saving and stopping",
                    std::chrono::duration<double>(*limit_.end() - now).count(), limit_.needed(due)));
  }
  return true;
}

TimeLimit::Due TrainingRun::due_from(int64_t step) const {
  return {.save = wants_save(step),
          .evaluation = wants_evaluation(step) || wants_evaluation(step + 1) || wants_evaluation(step + 2)};
}

// Whether what follows the step needs it to be done and reported.
bool TrainingRun::must_drain_after(int64_t step) const {
  return stop_ || wants_evaluation(step) || wants_save(step) || (environment_.profile && step == first_step_);
}

std::string TrainingRun::unsaved_steps() const {
  return saved_step_ < 0 ? "all steps" : fmt::format("everything after step {}", saved_step_);
}

ExitCode TrainingRun::end_after_stop(int64_t step) {
  if (last_save_failed_) {
    if (!first_rank()) end_without_report(ExitCode::crash);
    throw_crash("step ", step,
                " could not be saved when the run was asked to stop (reason above); the next start repeats ",
                unsaved_steps());
  }
  if (first_rank()) {
    environment_.events.write("stop", {{"step", step}});
    environment_.log.info(fmt::format("stopped after step {}; run the same command to continue", step));
  }
  return ExitCode::stopped;
}

// For rank 0 of a run whose last step had already been saved.
void TrainingRun::end_without_training() {
  if (saved_step_ > config_.train.steps) {
    environment_.log.warning(
        fmt::format("step {} is already done, and train.steps={}: nothing to do, and config.conf is unchanged; set a "
                    "larger train.steps to continue",
                    saved_step_, config_.train.steps));
    return;
  }
  environment_.log.info(fmt::format("step {}, the last one, is already done; nothing to do", config_.train.steps));
  // The step's save may have been killed before it removed old steps.
  apply_retention(checkpoints(), retention(), saved_step_, environment_.log);
}

ExitCode TrainingRun::run() {
  {
    const auto section = environment_.watchdog.enter("resume", setup_deadline(config_));
    if (!resume()) begin();
    write_configuration();
    choose_algorithms();
    measure_peak();
    run_on_first_rank(environment_.world, [&] {
      report_ = RunReport(config_, first_step_, peak_, environment_.log, environment_.show_progress);
    });
  }
  announce();
  catch_up_on_evaluation();
  if (evaluation_pending_) return end_after_stop(first_step_ - 1);
  if (first_step_ > config_.train.steps) {
    if (first_rank()) end_without_training();
    return ExitCode::done;
  }
  if (config_.checkpoint.every > 0 && first_step_ == 1) save(0);
  for (int64_t step = first_step_; step <= config_.train.steps; ++step) {
    const Deadline deadline = config_.fault.step_deadline > 0 && step > first_step_
                                  ? Deadline{config_.fault.step_deadline, "fault.step_deadline"}
                                  : automatic_.deadline();
    ledger_.take_times();  // discards the times of evaluation and saves
    {
      // While the device works on this step, the host reads the result of the previous one; the same on every device.
      const auto section = environment_.watchdog.enter(fmt::format("step {}", step), deadline);
      trainer_->step(step, training_batches(config_, layout_, dp(), step, *train_), stop_requested(due_from(step)));
      if (unread_step_ > 0) report_finished_step();
      unread_step_ = step;
      if (must_drain_after(step)) drain();
    }
    if (environment_.profile && step == first_step_) {
      ledger_.clear_work();
      stream_.timed = true;
    }
    if (wants_save(step) || stop_) save(step);  // before the evaluation, which can be repeated if it is cut off
    if (wants_evaluation(step)) evaluate(step, all_evaluation());
    if (stop_) save(step);
    const bool stopping = stop_ || step == config_.train.stop_at;
    if (stopping || step == config_.train.steps) log_profile(step);
    if (stopping && (step < config_.train.steps || evaluation_pending_)) return end_after_stop(step);
  }
  if (last_save_failed_) {
    if (!first_rank()) end_without_report(ExitCode::crash);
    throw_crash("the last step could not be saved (reason above); fix the cause, then run the same command to repeat ",
                unsaved_steps());
  }
  return ExitCode::done;
}

Deadline setup_deadline(const RunConfig& config) {
  return {config.fault.setup_deadline, "fault.setup_deadline"};
}

ExitCode run_training(const RunConfig& config, const RunEnvironment& environment) {
  auto section = environment.watchdog.enter("set-up", setup_deadline(config));
  TrainingRun run(config, environment);
  section.leave();
  // Covers the run's end, when work under way is abandoned or peers are waited for.
  struct Ending {
    std::function<void()> begin;
    ~Ending() { begin(); }
  };
  const Ending ending{[&] { section = environment.watchdog.enter("the run's end", setup_deadline(config)); }};
  return run.run();
}

}  // namespace shiftron
