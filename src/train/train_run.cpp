// The loop around Trainer::step.
#include "train/train_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/restore.h"
#include "checkpoint/save.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/host.h"
#include "core/trace_range.h"
#include "parallel/agree.h"
#include "train/batches.h"
#include "train/device.h"
#include "train/device_room.h"
#include "train/layout_picture.h"
#include "train/learning_rate.h"
#include "train/library_choices.h"
#include "train/profile.h"
#include "train/resume.h"
#include "train/run_report.h"
#include "train/saved_state.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

// Throws where another start has taken over the run's directory, which rank 0 holds. Who removes it, or its lock, by
// hand does not end the run.
void require_own(const RunEnvironment& environment) {
  if (!environment.lock || environment.lock->look() == DirectoryLock::Hold::held) return;
  if (!environment.events.others_started()) environment.lock->retake();
  if (environment.lock->look() == DirectoryLock::Hold::held) return;
  throw_crash(
      "another start has taken over the run's directory, because this one had given no sign of life for a long "
      "time; nothing more is written, so that nothing of that one's is lost");
}

class TrainingRun {
 public:
  TrainingRun(const RunConfig& config, const RunEnvironment& environment);
  ExitCode run();

 private:
  void check_vocabulary() const;
  void open_directory();
  void write_start() const;
  void resume();
  void announce() const;
  void choose_algorithms();
  void measure_peak();
  void settle();
  void drain();
  void evaluate(int64_t step);
  bool save(int64_t step);
  void tell_profile(int64_t step) const;
  bool wants_save(int64_t step) const;
  bool wants_evaluation(int64_t step) const;
  bool drains_behind(int64_t step) const;
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
  RunReport report_;
  double peak_ = 0;     // operations per second of all ranks
  MachineRates rates_;  // of this rank
  double profiled_seconds_ = 0;
  std::string validation_fingerprint_;
  std::string library_choices_;  // JSON; "": none
  int64_t first_step_ = 1;  // of this process
  int64_t saved_step_ = -1;
  int64_t unread_step_ = 0;  // given to the device, its result not read; 0: none
  StepDeadline automatic_;
  bool last_save_failed_ = false;
  bool stop_ = false;
  std::optional<Watchdog::Inquiry> inquiry_;  // about the trainer
};

TrainingRun::TrainingRun(const RunConfig& config, const RunEnvironment& environment)
    : config_(config),
      environment_(environment),
      layout_(make_layout(config.parallel, environment.world.size())),
      stream_{.ledger = &ledger_},
      automatic_(setup_deadline(config)) {
  all_agree(environment.world, [&] {
    train_.emplace(open_loader(config, config.data.train, true));
    if (config.evaluation.every > 0) {
      validation_.emplace(open_loader(config, config.data.validation, false));
      validation_fingerprint_ = validation_->fingerprint();
    }
    check_vocabulary();
  });
  open_directory();
  write_start();
  queue_ = start_device(config, environment.share, environment.world, stream_);
  Ledger planned;
  plan_ = plan_memory(config, layout_, environment.world.rank(), environment.share.threads, planned);
  require_room_on_device(environment.world, config, layout_, environment.share, stream_, planned, environment.log);
  Groups groups = make_groups(environment.world, layout_, config.model.kv_heads, schedule_of(config), stream_.device);
  trainer_ = std::make_unique<Trainer>(config, std::move(groups), stream_, plan_);
  inquiry_.emplace(environment.watchdog, [this] { return trainer_->engine().groups().under_way(); });
}

void TrainingRun::open_directory() {
  HostCommunicator& world = environment_.world;
  all_agree(world, [&] {
    if (first_rank()) environment_.lock = open_run(config_.output.directory, environment_.log);
  });
  all_agree(world, [&] { add_log_file(config_.output.directory, environment_.log); });
  environment_.events = Events(config_.output.directory, world.rank());  // a refused start has left no trace
}

// Who runs where: told to people, and the first line of every start in events.jsonl.
void TrainingRun::write_start() const {
  const std::vector<std::string> names = environment_.world.gather_text(host_name(), 0);
  if (!first_rank()) return;
  environment_.log.info(
      fmt::format("{} ranks, {}:\n{}", layout_.ranks(), text_of(layout_), layout_picture(config_, layout_, names)));
  if (const std::string warning = host_warning(layout_, names); !warning.empty()) environment_.log.warning(warning);
  std::map<std::string, int> hosts;  // ranks on each
  for (const std::string& name : names) ++hosts[name];
  environment_.events.write(
      "start", {{"process", ::getpid()},
                {"ranks", layout_.ranks()},
                {"layout", {{"tp", layout_.tp}, {"cp", layout_.cp}, {"dp", layout_.dp}, {"pp", layout_.pp}}},
                {"rank_order", text_of(layout_.order)},
                {"hosts", hosts},
                {"threads", environment_.share.threads},
                {"configuration", to_hex(xxh3_64(hash_input(config_)))}});
}

void TrainingRun::check_vocabulary() const {
  if (train_->vocab_size() > config_.model.vocab) {
    throw_bad_input("the data has ", train_->vocab_size(), " tokens, model.vocab is ", config_.model.vocab,
                    "; set model.vocab=", train_->vocab_size(), " or more");
  }
  if (validation_ && validation_->tokenizer_hash() != train_->tokenizer_hash()) {
    throw_bad_input("data.train and data.validation were made with different tokenizers (", train_->tokenizer_hash(),
                    ", ", validation_->tokenizer_hash(), "); build both with one");
  }
}

void TrainingRun::resume() {
  using Kind = ResumeChoice::Kind;
  const ResumeChoice& choice = config_.checkpoint.resume;
  HostCommunicator& world = environment_.world;
  ParameterSet& parameters = trainer_->engine().parameters();
  std::optional<CheckpointContent> content;
  if (choice.kind == Kind::never) {
    const bool there = world.broadcast_text(list_steps(checkpoints()).empty() ? "0" : "1", 0) == "1";
    if (there) {
      throw_bad_input(checkpoints(),
                      " holds steps and checkpoint.resume=never; choose another output.directory, or "
                      "checkpoint.resume=auto to go on");
    }
  } else {
    if (first_rank()) sweep_temporaries(checkpoints(), environment_.log);
    world.barrier();
    std::string wanted;  // step; "" = the newest
    all_agree(world, [&] {
      if (!first_rank()) return;
      const std::optional<int64_t> step = step_to_resume(config_, checkpoints(), environment_.log);
      if (step) wanted = std::to_string(*step);
    });
    wanted = world.broadcast_text(wanted, 0);
    content = load_checkpoint(checkpoints(), wanted.empty() ? std::nullopt : std::optional(std::stoll(wanted)),
                              parameters, world, environment_.log, stream_.cpu.threads);
  }
  if (!content) {
    parameters.initialise(static_cast<uint64_t>(config_.train.seed));
  } else {
    const SavedState state = saved_state(content->state_json, checkpoints());
    const RunConfig& saved = state.configuration;
    const bool imported = !state.imported_from.empty();
    require_resumable(saved, config_, imported);
    if (imported) {
      require_tokenizer_of(state.imported_from, checkpoints() + "/" + step_name(content->step), *content,
                           train_->tokenizer_hash(), environment_.log);
    } else {
      require_same_data("data.train", content->step, content->data_fingerprint, train_->fingerprint());
    }
    if (validation_fingerprint_.empty()) validation_fingerprint_ = state.validation_fingerprint;
    if (!state.validation_fingerprint.empty()) {
      require_same_data("data.validation", content->step, state.validation_fingerprint, validation_fingerprint_);
    }
    trainer_->restore(state.trainer);
    if (state.bfloat16_matmul) {
      stream_.cpu.bfloat16_matmul = *state.bfloat16_matmul;
      stream_.cpu.bfloat16_tiles = *state.bfloat16_tiles;
    }
    library_choices_ = state.library_choices;
    first_step_ = content->step + 1;
    saved_step_ = content->step;
    if (first_rank()) {
      for (const ChangedKey& changed : imported ? std::vector<ChangedKey>() : changed_keys(saved, config_)) {
        environment_.log.info(fmt::format("resume: {} was {}, is {}", changed.key, changed.before, changed.after));
      }
      if (!imported) warn_of_new_end(saved, config_, first_step_, environment_.log);
      environment_.events.write("resume", {{"step", content->step}});
      environment_.log.info(fmt::format("resuming behind step {}{}", content->step,
                                        imported ? ", imported from " + state.imported_from : ""));
      supersede_later_steps(checkpoints(), content->step, environment_.log);
      supersede_metrics(config_.output.directory, content->step);
    }
    world.barrier();
  }
  if (first_rank()) {
    if (!content) supersede_metrics(config_.output.directory, 0);  // of a run that ended before its first save
    write_file_durably(config_.output.directory + "/config.conf", to_config_text(config_));
  }
}

// Those of the checkpoint, else those of an earlier start of this run, else timed now.
void TrainingRun::choose_algorithms() {
  const std::string path = config_.output.directory + "/library_choices.json";
  std::string source = "the checkpoint's algorithms";
  if (library_choices_.empty()) {
    source = path;
    const bool reads = first_rank() && config_.device.kind == DeviceChoice::cuda && std::filesystem::exists(path);
    library_choices_ = environment_.world.broadcast_text(reads ? read_file(path) : std::string(), 0);
  }
  library_choices_ = shiftron::choose_algorithms(config_, *trainer_,
                                                 training_batches(config_, layout_, dp(), first_step_, *train_),
                                                 environment_.world, library_choices_, source, environment_.log);
  if (first_rank() && !library_choices_.empty()) write_file_durably(path, library_choices_);
}

void TrainingRun::measure_peak() {
  environment_.world.barrier();  // all at once, as in training
  Libraries& libraries = trainer_->engine().libraries();
  libraries.time_candidates(config_.train.deterministic == Deterministic::off);
  rates_.operations = measure_matmul_peak(stream_, product_type(config_.train.precision, stream_.cpu));
  libraries.time_candidates(false);
  if (environment_.profile) rates_.bytes = measure_copy_bandwidth(stream_.cpu);
  peak_ = 0;
  for (const std::string& rate : environment_.world.gather_text(fmt::format("{}", rates_.operations), 0)) {
    peak_ += std::stod(rate);
  }
}

void TrainingRun::announce() const {
  if (!first_rank()) return;
  int64_t local = 0;
  for (const auto& [category, bytes] : ledger_.memory()) local += bytes;
  environment_.log.info(
      fmt::format("{} ranks: {}; rank 0 holds {:.1f} MB; {} windows of {} tokens in an epoch ({} "
                  "tokens dropped); "
                  "GEMM peak {:.0f} GFLOP/s",
                  layout_.ranks(), text_of(layout_), static_cast<double>(local) / 1e6, thousands(train_->windows()),
                  config_.train.sequence_length, train_->dropped_tokens(), peak_ / 1e9));
}

void TrainingRun::evaluate(int64_t step) {
  Watchdog::Section section = environment_.watchdog.enter(
      fmt::format("evaluation at step {}", step), {config_.fault.evaluation_deadline, "fault.evaluation_deadline"});
  const BatchReader read = evaluation_batches(config_, layout_, dp(), *validation_);
  const BatchReader read_in_time = [&](int index, HostBatch& batch) {
    section.renew();
    read(index, batch);
  };
  report_.validation(step, trainer_->evaluate(evaluation_microbatches(config_, layout_, *validation_), read_in_time));
}

bool TrainingRun::save(int64_t step) {
  if (saved_step_ == step) return true;
  const TraceRange range("save");
  const auto section = environment_.watchdog.enter(fmt::format("saving step {}", step),
                                                   {config_.fault.checkpoint_deadline, "fault.checkpoint_deadline"});
  all_agree(environment_.world, [&] { require_own(environment_); });
  const SavedState state = {.configuration = config_,
                            .trainer = trainer_->state(),
                            .consumed_samples = step * config_.train.global_batch,
                            .validation_fingerprint = validation_fingerprint_,
                            .bfloat16_matmul = stream_.cpu.bfloat16_matmul,
                            .bfloat16_tiles = stream_.cpu.bfloat16_tiles,
                            .library_choices = library_choices_,
                            .imported_from = ""};
  const CheckpointContent content{.step = step,
                                  .configuration = to_config_text(config_),
                                  .state_json = to_json(state),
                                  .tokenizer_model = train_->tokenizer_bytes(),
                                  .data_fingerprint = train_->fingerprint(),
                                  .code_version = environment_.code_version};
  const SaveResult result = save_checkpoint(
      checkpoints(), content, trainer_->engine().parameters(), environment_.world,
      {.keep = config_.checkpoint.keep, .keep_every = config_.checkpoint.keep_every, .was_to_stay = was_to_stay},
      environment_.log,
      {.threads = stream_.cpu.threads, .before_commit = [&] {
         require_own(environment_);
         report_.sync();
       }});
  last_save_failed_ = !result.saved;
  if (result.saved) saved_step_ = step;
  if (!first_rank()) return result.saved;
  if (result.saved) {
    environment_.log.info(fmt::format("saved {} ({:.1f} MB, {:.2f} s)", result.directory,
                                      static_cast<double>(result.bytes) / 1e6, result.seconds));
    environment_.events.write("checkpoint", {{"step", step}, {"bytes", result.bytes}, {"seconds", result.seconds}});
  } else {
    environment_.log.error(fmt::format("step {} could not be saved: {}; training goes on", step, result.reason));
    environment_.events.write("checkpoint_failed", {{"step", step}, {"reason", result.reason}});
  }
  return result.saved;
}

// Reads the result of the step that is under way, or was the last one, and tells it.
void TrainingRun::settle() {
  const int64_t step = unread_step_;
  unread_step_ = 0;
  const StepResult result = trainer_->result(step);
  stop_ = stop_ || result.stop;
  automatic_.add(result.seconds);
  if (environment_.profile && step > first_step_) profiled_seconds_ += result.seconds;
  if (first_rank()) {
    require_own(environment_);
    if (result.skipped) {
      environment_.log.warning(fmt::format("step {} was skipped: loss {}, gradient norm {}, {} counted targets", step,
                                           result.loss, result.gradient_norm, result.counted));
      environment_.events.write("skip", {{"step", step}});
    }
    report_.step(step, result, trainer_->group_names(), ledger_);
  }
  if (result.skipped_in_row < config_.fault.non_finite_in_row) return;
  if (!first_rank()) leave_to_another(ExitCode::non_finite);
  throw Error(fmt::format("{} steps in a row had no finite loss and gradient, the last is step {}; lower "
                          "optimizer.learning_rate, or resume from an older step (checkpoint.resume=STEP)",
                          result.skipped_in_row, step),
              ExitCode::non_finite);
}

// Nothing is under way, and all steps are told.
void TrainingRun::drain() {
  if (unread_step_ > 0) settle();
}

void TrainingRun::tell_profile(int64_t step) const {
  const int64_t steps = step - first_step_;
  if (!environment_.profile || !first_rank() || steps < 1) return;
  environment_.log.info("kernels of rank 0, each step with its share of evaluations:\n" +
                        profile_table(ledger_, steps, profiled_seconds_ / static_cast<double>(steps), rates_));
}

bool TrainingRun::wants_save(int64_t step) const {
  const int64_t every = config_.checkpoint.every;
  return step == config_.train.stop_at || step == config_.train.steps || (every > 0 && step % every == 0);
}

bool TrainingRun::wants_evaluation(int64_t step) const {
  const int64_t every = config_.evaluation.every;
  return every > 0 && (step % every == 0 || step == config_.train.steps);
}

// What follows needs the step to be done and told.
bool TrainingRun::drains_behind(int64_t step) const {
  return stop_ || wants_evaluation(step) || wants_save(step) || (environment_.profile && step == first_step_);
}

ExitCode TrainingRun::run() {
  {
    const auto section = environment_.watchdog.enter("resume", setup_deadline(config_));
    told_by_first(environment_.world, [&] { resume(); });
    choose_algorithms();
    measure_peak();
    told_by_first(environment_.world, [&] {
      if (first_rank()) report_ = RunReport(config_, first_step_, peak_, environment_.log, environment_.show_progress);
    });
  }
  announce();
  if (first_step_ > config_.train.steps) {
    if (first_rank()) environment_.log.info(fmt::format("step {} is the last one; nothing to do", config_.train.steps));
    return ExitCode::done;
  }
  if (config_.checkpoint.every > 0 && first_step_ == 1) save(0);
  report_.start_clock();
  for (int64_t step = first_step_; step <= config_.train.steps; ++step) {
    const Deadline deadline = config_.fault.step_deadline > 0 && step > first_step_
                                  ? Deadline{config_.fault.step_deadline, "fault.step_deadline"}
                                  : automatic_.deadline();
    ledger_.take_times();  // of evaluation and saves
    {
      // While the device works on this step, the host learns of the one before: one rule on every device.
      const auto section = environment_.watchdog.enter(fmt::format("step {}", step), deadline);
      trainer_->step(step, training_batches(config_, layout_, dp(), step, *train_), environment_.stop_requested());
      if (unread_step_ > 0) settle();
      unread_step_ = step;
      if (drains_behind(step)) drain();
    }
    if (environment_.profile && step == first_step_) {
      ledger_.clear_work();
      stream_.timed = true;
    }
    const bool stopping = stop_ || step == config_.train.stop_at;
    if (wants_evaluation(step)) evaluate(step);
    if (wants_save(step) || stopping) save(step);
    if (stopping || step == config_.train.steps) tell_profile(step);
    if (stopping && step < config_.train.steps) {
      if (last_save_failed_) {
        if (!first_rank()) leave_to_another(ExitCode::crash);
        throw_crash("step ", step, " could not be saved on the stop request; what was saved before is as it was");
      }
      if (first_rank()) {
        environment_.events.write("stop", {{"step", step}});
        environment_.log.info(fmt::format("stopped behind step {}; start again to go on", step));
      }
      return ExitCode::stopped;
    }
  }
  if (last_save_failed_) {
    if (!first_rank()) leave_to_another(ExitCode::crash);
    throw_crash(
        "the last step could not be saved, for the reason told above; mend it and start again to repeat the end");
  }
  return ExitCode::done;
}

}  // namespace

Deadline setup_deadline(const RunConfig& config) {
  return {config.fault.setup_deadline, "fault.setup_deadline"};
}

ExitCode run_training(const RunConfig& config, const RunEnvironment& environment) {
  auto setup = environment.watchdog.enter("set-up", setup_deadline(config));
  TrainingRun run(config, environment);
  setup.leave();
  return run.run();
}

}  // namespace shiftron
