// The loop around Trainer::step.
#include "train/train_run.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/config_text.h"
#include "core/event.h"
#include "core/file.h"
#include "core/ledger.h"
#include "core/queue.h"
#include "core/stream.h"
#include "core/trace_range.h"
#include "kernels/choose_products.h"
#include "kernels/kernels.h"
#include "parallel/agree.h"
#include "parallel/connect_groups.h"
#include "parallel/watchdog.h"
#include "run/overflow.h"
#include "run/resume.h"
#include "run/run_report.h"
#include "run/saved_state.h"
#include "train/batches.h"
#include "train/device.h"
#include "train/device_memory.h"
#include "train/run_data.h"
#include "train/run_evaluation.h"
#include "train/run_saves.h"
#include "train/run_start.h"
#include "train/run_stop.h"
#include "train/start_point.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

Watchdog::Section wait_for_files(const RunConfig& config, const RunEnvironment& environment, const std::string& what) {
  return environment.watchdog.enter_file_wait(what, {config.fault.read_deadline, "fault.read_deadline"});
}

// Benchmarks of evaluation.tasks; null: none.
std::unique_ptr<StepEvaluation> make_tasks(const RunConfig& config, const RunEnvironment& environment,
                                           const Loader& data) {
  if (config.evaluation.tasks.empty()) return nullptr;
  CHECK(environment.make_evaluation != nullptr, "evaluation.tasks ", config.evaluation.tasks, " has no evaluator");
  run_on_all_ranks(environment.world, [&] {
    if (data.tokenizer().is_there()) return;
    throw_bad_input("evaluation.tasks ", config.evaluation.tasks, " needs a tokenizer, but data.train has none (",
                    config.data.train.front().directory,
                    "); build it with --ids --tokenizer FILE, or omit evaluation.tasks");
  });
  return environment.make_evaluation(data.tokenizer());
}

// One rank's run from start to end.
class TrainingRun {
 public:
  TrainingRun(const RunConfig& config, const RunEnvironment& environment);
  ExitCode run();

 private:
  void start();
  void report_finished_step();
  void refuse_skips(int64_t step, const StepResult& result) const;
  void warn_of_zero_gradient(int64_t step, const StepResult& result);
  void drain();
  bool save(int64_t step);
  void log_profile(int64_t step);
  bool must_drain_after(int64_t step) const;
  TimeLimit::Due due_from(int64_t step) const;
  ExitCode end_after_stop(int64_t step);
  void end_without_training();
  BatchReader batches_of(int64_t step) {
    return training_batches(config_, layout_, trainer_->engine().groups().at.dp, step, data_.train());
  }
  bool first_rank() const { return environment_.world.rank() == 0; }

  const RunConfig& config_;
  const RunEnvironment& environment_;
  ParallelLayout layout_;
  RunData data_;
  RunStop stop_;
  RunSaves saves_;
  Ledger ledger_;
  std::unique_ptr<Queue> queue_;  // the stream's, on a GPU
  Stream stream_;
  MemoryPlan plan_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<StepEvaluation> tasks_;
  RunReport report_;
  std::optional<RunEvaluation> evaluation_;
  StartPoint start_;
  std::string library_choices_;  // JSON; "": none
  MeasuredRates rates_;
  double profiled_seconds_ = 0;
  int64_t zero_gradients_ = 0;  // rank 0's: steps of this process that had one
  int64_t unread_step_ = 0;     // handed to the device, but its result not read; 0: none
  StepDeadline automatic_;
  std::optional<Watchdog::Inquiry> inquiry_;  // about the trainer
};

TrainingRun::TrainingRun(const RunConfig& config, const RunEnvironment& environment)
    : config_(config),
      environment_(environment),
      layout_(make_layout(config.parallel, environment.world.size())),
      data_(config, layout_, environment.world,
            [&config, &environment](const std::string& path, const std::function<void()>& read) {
              const auto section = wait_for_files(config, environment, "reading " + path);
              read();
            }),
      stop_(environment.world, environment.stop_requested, environment.log),
      saves_(config, environment),
      stream_{.ledger = &ledger_},
      automatic_(setup_deadline(config)) {
  tasks_ = make_tasks(config, environment, data_.train());
  open_directory(config, environment);
  if (first_rank() && environment.end_time) {
    stop_.limit = TimeLimit(environment.end_time, last_save_seconds(config.output.directory));
  }
  write_start(config, environment, layout_);
  StartedDevice started = start_device(config, environment.share, environment.world, stream_);
  queue_ = std::move(started.queue);
  if (!started.products.empty()) environment.log.info("bfloat16 matrix products: " + started.products);
  if (!started.binding.empty()) environment.log.info(started.binding);
  const std::string sharing = sharing_warning(started.hosts);
  if (first_rank() && !sharing.empty()) environment.log.warning(sharing);
  if (first_rank()) data_.warn_of_validation(environment.log);
  Ledger planned;
  plan_ = plan_memory(config, layout_, environment.world.rank(), environment.share.threads, planned);
  if (tasks_ != nullptr) tasks_->plan(layout_, environment.world.rank(), environment.share.threads, planned);
  const int64_t free = require_device_memory(environment.world, config, layout_, started.ranks_of_memory, stream_,
                                             planned, environment.log);
  Groups groups = make_groups(environment.world, layout_, config.model.kv_heads, schedule_of(config), stream_.device);
  connect_groups(environment.world, groups, planned.traffic(), stream_);
  require_memory_beyond_groups(environment.world, config, started.ranks_of_memory, free, stream_, planned,
                               environment.log);
  trainer_ = std::make_unique<Trainer>(config, std::move(groups), stream_, plan_);
  if (tasks_ != nullptr) tasks_->attach(trainer_->engine());
  evaluation_.emplace(EvaluatedRun{config, environment, layout_, *trainer_, report_, stop_}, data_.validation(),
                      tasks_.get());
  inquiry_.emplace(environment.watchdog, [this] { return trainer_->engine().groups().under_way(); });
}

constexpr char kWithoutTokenizer[] =
    "its data.train has none, so it can only read and write token ids (`evaluate --data`, `generate --ids`); for text, "
    "build the data with --tokenizer FILE";

// False if the step is not on the disk.
bool TrainingRun::save(int64_t step) {
  if (saves_.newest() == step) return true;
  const TraceRange range("save");
  auto section = environment_.watchdog.enter(fmt::format("saving step {}", step),
                                             {config_.fault.checkpoint_deadline, "fault.checkpoint_deadline"});
  const StoredTokenizer& tokenizer = data_.train().tokenizer();
  const SavedState state = {.configuration = config_,
                            .trainer = trainer_->state(),
                            .consumed_samples = step * config_.train.global_batch,
                            .validation_fingerprint = data_.validation_fingerprint(),
                            .bfloat16 = chooses_products(config_) ? std::optional(stream_.cpu.bfloat16) : std::nullopt,
                            .library_choices = library_choices_,
                            .imported_from = "",
                            .without_tokenizer = tokenizer.is_there() ? "" : kWithoutTokenizer,
                            .end_of_document = data_.train().end_of_document(),
                            .origin = start_.origin};
  const CheckpointContent content{.step = step,
                                  .configuration = to_config_text(config_),
                                  .state_json = to_json(state),
                                  .tokenizer = tokenizer,
                                  .data_fingerprint = data_.train().fingerprint(),
                                  .code_version = environment_.code_version};
  SaveOptions options{.threads = stream_.cpu.threads};
  options.before_commit = [&] { report_.sync(); };
  options.committed = [&] { section.renew(); };
  const SaveResult result =
      saves_.save(content, trainer_->engine().parameters(), stop_.is_stopping(), std::move(options));
  stop_.limit.add_save(result.seconds);
  return result.saved;
}

// Reads and reports the result of the step that is under way, or was the last one.
void TrainingRun::report_finished_step() {
  const int64_t step = unread_step_;
  unread_step_ = 0;
  const StepResult result = trainer_->result(step);
  stop_.add(result.stop);
  automatic_.add(result.seconds);
  stop_.limit.add_step(result.seconds);
  if (environment_.profile && step > start_.first_step) {
    profiled_seconds_ += result.seconds;
    ledger_.add_reached_times();
  }
  if (first_rank()) {
    const auto section = wait_for_files(
        config_, environment_, fmt::format("writing the row of step {} into {}", step, config_.output.directory));
    require_lock_held(environment_);
    if (result.skipped) {
      environment_.log.warning(fmt::format("step {} was skipped: loss {}, gradient norm {}, {} counted targets", step,
                                           result.loss, result.gradient_norm, result.counted));
      environment_.events.write("skip", {{"step", step}});
    }
    warn_of_zero_gradient(step, result);
    report_.step(step, result, trainer_->group_names(), ledger_);
  }
  if (result.skipped_in_row >= config_.fault.non_finite_in_row) refuse_skips(step, result);
}

// Ends the run after too many skipped steps in a row.
void TrainingRun::refuse_skips(int64_t step, const StepResult& result) const {
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
                            step, non_finite_advice(config_, saves_.directory(), step - result.skipped_in_row)),
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
  const int64_t steps = step - start_.first_step;
  if (!environment_.profile || !first_rank() || steps < 1) return;
  finish(stream_);
  ledger_.add_reached_times();
  environment_.log.info("kernels of rank 0, per step, evaluations included:\n" +
                        profile_table(ledger_, steps, profiled_seconds_ / static_cast<double>(steps), rates_.own));
  if (chooses_products(config_)) {
    environment_.log.info("bfloat16 matrix products: " + text_of(stream_.cpu.bfloat16));
  }
}

TimeLimit::Due TrainingRun::due_from(int64_t step) const {
  return {.save = saves_.is_wanted_after(step),
          .evaluation = evaluation_->is_wanted_after(step) || evaluation_->is_wanted_after(step + 1) ||
                        evaluation_->is_wanted_after(step + 2)};
}

// Whether what follows the step needs it to be done and reported.
bool TrainingRun::must_drain_after(int64_t step) const {
  return stop_.is_stopping() || evaluation_->is_wanted_after(step) || saves_.is_wanted_after(step) ||
         (environment_.profile && step == start_.first_step);
}

ExitCode TrainingRun::end_after_stop(int64_t step) {
  if (saves_.last_failed()) {
    if (!first_rank()) end_without_report(ExitCode::crash);
    throw_crash("step ", step,
                " could not be saved when the run was asked to stop (reason above); the next start repeats ",
                saves_.unsaved_steps());
  }
  if (first_rank()) {
    environment_.events.write("stop", {{"step", step}});
    environment_.log.info(fmt::format("stopped after step {}; run the same command to continue", step));
  }
  return ExitCode::stopped;
}

// For rank 0 of a run whose last step had already been saved.
void TrainingRun::end_without_training() {
  if (saves_.newest() > config_.train.steps) {
    environment_.log.warning(
        fmt::format("step {} is already done, and train.steps={}: nothing to do, and config.conf is unchanged; set a "
                    "larger train.steps to continue",
                    saves_.newest(), config_.train.steps));
    return;
  }
  environment_.log.info(fmt::format("step {}, the last one, is already done; nothing to do", config_.train.steps));
  // The step's save may have been killed before it removed old steps.
  saves_.remove_old_steps();
}

// Until the first step can begin.
void TrainingRun::start() {
  const auto section = environment_.watchdog.enter("resume", setup_deadline(config_));
  start_ = find_start(config_, environment_, data_, *trainer_, stream_);
  saves_.set_newest(start_.saved_step);
  if (first_rank() && start_.first_step <= config_.train.steps + 1) {
    write_file_durably(config_.output.directory + "/config.conf", to_config_text(config_));
  }
  library_choices_ =
      choose_run_algorithms(config_, environment_, batches_of(start_.first_step), *trainer_, start_.library_choices);
  rates_ = measure_rates(config_, environment_, *trainer_, stream_);
  run_on_first_rank(environment_.world, [&] {
    report_ = RunReport(config_, start_.first_step, rates_.operations, environment_.log, environment_.show_progress);
  });
}

ExitCode TrainingRun::run() {
  start();
  if (first_rank()) announce(config_, ledger_, data_.train(), rates_.operations, environment_.log);
  evaluation_->catch_up(start_.first_step - 1, start_.rows);
  if (evaluation_->is_pending()) return end_after_stop(start_.first_step - 1);
  if (start_.first_step > config_.train.steps) {
    if (first_rank()) end_without_training();
    return ExitCode::done;
  }
  if (config_.checkpoint.every > 0 && start_.first_step == 1) save(0);
  for (int64_t step = start_.first_step; step <= config_.train.steps; ++step) {
    const Deadline deadline = config_.fault.step_deadline > 0 && step > start_.first_step
                                  ? Deadline{config_.fault.step_deadline, "fault.step_deadline"}
                                  : automatic_.deadline();
    ledger_.take_times();  // discards the times of evaluation and saves
    {
      // While the device works on this step, the host reads the result of the previous one; the same on every device.
      const auto section = environment_.watchdog.enter(fmt::format("step {}", step), deadline);
      trainer_->step(step, batches_of(step), stop_.is_wanted(due_from(step)));
      if (unread_step_ > 0) report_finished_step();
      unread_step_ = step;
      if (must_drain_after(step)) drain();
    }
    if (environment_.profile && step == start_.first_step) {
      ledger_.clear_work();
      stream_.timed = true;
    }
    // Before the evaluation, which can be repeated if it is cut off.
    if (saves_.is_wanted_after(step) || stop_.is_stopping()) save(step);
    if (evaluation_->is_wanted_after(step)) evaluation_->evaluate(step);
    if (stop_.is_stopping()) save(step);
    const bool stopping = stop_.is_stopping() || step == config_.train.stop_at;
    if (stopping || step == config_.train.steps) log_profile(step);
    if (stopping && (step < config_.train.steps || evaluation_->is_pending())) return end_after_stop(step);
  }
  if (saves_.last_failed()) {
    if (!first_rank()) end_without_report(ExitCode::crash);
    throw_crash("the last step could not be saved (reason above); fix the cause, then run the same command to repeat ",
                saves_.unsaved_steps());
  }
  return ExitCode::done;
}

}  // namespace

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
