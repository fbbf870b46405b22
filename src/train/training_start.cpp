// What a run does before its first step: data, directory, memory, the step from which it resumes.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/restore.h"
#include "checkpoint/steps.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/host.h"
#include "core/progress.h"
#include "kernels/choose_products.h"
#include "parallel/agree.h"
#include "parallel/connect_groups.h"
#include "train/batches.h"
#include "train/device.h"
#include "train/device_memory.h"
#include "train/layout_picture.h"
#include "train/library_choices.h"
#include "train/resume.h"
#include "train/saved_state.h"
#include "train/start_text.h"
#include "train/training_run.h"

namespace shiftron {

TrainingRun::TrainingRun(const RunConfig& config, const RunEnvironment& environment)
    : config_(config),
      environment_(environment),
      layout_(make_layout(config.parallel, environment.world.size())),
      stream_{.ledger = &ledger_},
      automatic_(setup_deadline(config)) {
  run_on_all_ranks(environment.world, [&] {
    train_.emplace(open_loader(config, config.data.train, true));
    const AroundRead in_time = [this](const std::string& path, const std::function<void()>& read) {
      const auto section = wait_for_files("reading " + path);
      read();
    };
    train_->read_by(in_time);
    if (config.evaluation.every > 0 && !config.data.validation.empty()) {
      validation_.emplace(open_loader(config, config.data.validation, false));
      validation_->read_by(in_time);
      validation_fingerprint_ = validation_->fingerprint();
      evaluation_microbatches(config, layout_, *validation_);  // throws if there are too many
    }
    check_vocabulary();
    if (!first_rank()) return;
    train_->require_shards();
    if (validation_) validation_->require_shards();
  });
  std::vector<RankSetting> data;
  add_data(data, "data.train", config.data.train, *train_);
  if (validation_) add_data(data, "data.validation", config.data.validation, *validation_);
  require_same_settings(environment.world, data);
  if (!config.evaluation.tasks.empty()) {
    CHECK(environment.make_evaluation != nullptr, "evaluation.tasks ", config.evaluation.tasks, " has no evaluator");
    run_on_all_ranks(environment.world, [&] {
      if (!train_->tokenizer_bytes().empty()) return;
      throw_bad_input("evaluation.tasks ", config.evaluation.tasks, " needs a tokenizer, but data.train has none (",
                      config.data.train.front().directory,
                      "); build it with --ids --tokenizer FILE, or omit evaluation.tasks");
    });
    tasks_ = environment.make_evaluation(train_->tokenizer_bytes());
  }
  open_directory();
  write_start();
  StartedDevice started = start_device(config, environment.share, environment.world, stream_);
  queue_ = std::move(started.queue);
  if (!started.products.empty()) environment.log.info("bfloat16 matrix products: " + started.products);
  if (!started.binding.empty()) environment.log.info(started.binding);
  const std::string sharing = sharing_warning(started.hosts);
  if (first_rank() && !sharing.empty()) environment.log.warning(sharing);
  if (first_rank()) warn_of_validation();
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
  inquiry_.emplace(environment.watchdog, [this] { return trainer_->engine().groups().under_way(); });
}

void TrainingRun::warn_of_validation() const {
  const std::vector<DataSource>& sources = config_.data.validation;
  if (sources.empty()) return;
  Log& log = environment_.log;
  if (!config_.origins.contains("evaluation.every")) {
    log.warning("data.validation is not used: set evaluation.every, the number of steps between evaluations");
  }
  if (!validation_) return;
  if (sources.front().weight > 0) {
    log.warning(
        "data.validation: weights have no effect; an evaluation reads each source in proportion to its number of "
        "windows");
  }
  const std::vector<std::string> learned = train_->fingerprints_of_sources();
  const std::vector<std::string> held_out = validation_->fingerprints_of_sources();
  for (size_t i = 0; i < sources.size(); ++i) {
    if (std::ranges::find(learned, held_out[i]) == learned.end()) continue;
    log.warning("data.validation: " + sources[i].directory +
                " is also in data.train, so its loss is measured on training text; `shiftron data build "
                "--validation-fraction` sets text aside");
  }
}

void TrainingRun::open_directory() {
  HostCommunicator& world = environment_.world;
  run_on_all_ranks(world, [&] {
    if (first_rank()) environment_.lock = open_run(config_.output.directory, environment_.log);
  });
  require_shared(world, config_.output.directory, first_rank() ? environment_.lock->path() : "");
  run_on_all_ranks(world, [&] { add_log_file(config_.output.directory, environment_.log); });
  environment_.events = Events(config_.output.directory, world.rank());  // not earlier: a refused start leaves no trace
  if (first_rank() && environment_.end_time) {
    limit_ = TimeLimit(environment_.end_time, last_save_seconds(config_.output.directory));
  }
}

// Which ranks run where: logged for the user, and the first line of every start in events.jsonl.
void TrainingRun::write_start() const {
  const std::vector<std::string> names = environment_.world.gather_text(host_name(), 0);
  if (!first_rank()) return;
  environment_.log.info(start_text(config_, layout_, names, environment_.share.threads));
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
    throw_bad_input("the data's vocabulary has ", train_->vocab_size(), " tokens, but model.vocab is ",
                    config_.model.vocab, "; set model.vocab=", train_->vocab_size(), " or more");
  }
  if (!validation_) return;
  const auto words = [](const Loader& data) { return data.tokenizer_hash().empty() ? "none" : data.tokenizer_hash(); };
  if (validation_->tokenizer_hash() != train_->tokenizer_hash()) {
    throw_bad_input("data.train and data.validation were built with different tokenizers (", words(*train_), ", ",
                    words(*validation_), "); build both with the same one");
  }
  if (validation_->vocab_size() != train_->vocab_size() ||
      validation_->end_of_document() != train_->end_of_document()) {
    throw_bad_input("data.train has a vocabulary of ", train_->vocab_size(), " (end of document ",
                    train_->end_of_document(), "), but data.validation of ", validation_->vocab_size(), " (",
                    validation_->end_of_document(), "); build both with the same --vocab and --end-of-document");
  }
}

// The step that the run resumes from, with its parameters loaded; unset: the run begins.
std::optional<CheckpointContent> TrainingRun::load_step() {
  using Kind = ResumeChoice::Kind;
  HostCommunicator& world = environment_.world;
  if (config_.checkpoint.resume.kind == Kind::never) {
    run_on_first_rank(world, [&] {
      if (list_steps(checkpoints()).empty()) return;
      throw_bad_input(checkpoints(),
                      " contains steps, but checkpoint.resume=never; choose another output.directory, or resume with "
                      "checkpoint.resume=auto");
    });
    return {};
  }
  if (first_rank()) sweep_temporaries(checkpoints(), environment_.log);
  world.barrier();
  std::string wanted;  // step; "" = the newest
  run_on_all_ranks(world, [&] {
    if (!first_rank()) return;
    const std::optional<int64_t> step = step_to_resume(config_, checkpoints(), environment_.log);
    if (step) wanted = std::to_string(*step);
  });
  wanted = world.broadcast_text(wanted, 0);
  Engine& engine = trainer_->engine();
  std::optional<CheckpointContent> content;
  report_on_first_rank(world, [&] {
    content = load_checkpoint(
        checkpoints(), wanted.empty() ? std::nullopt : std::optional(std::stoll(wanted)), engine.parameters(), world,
        environment_.log,
        {.threads = stream_.cpu.threads,
         .gather = [&] { engine.gather_all(); },
         .rejected = [&](int64_t step, const std::string& fault) { unusable_steps_.emplace_back(step, fault); }});
  });
  return content;
}

// Throws if the run may not resume from the step as it is configured, or with the data that this rank has opened.
void TrainingRun::require_resumable_from(const CheckpointContent& content, const SavedState& state) const {
  const bool imported = !state.imported_from.empty();
  const std::string path = checkpoints() + "/" + step_name(content.step);
  require_resumable(state.configuration, config_, imported, path);
  if (imported) {
    require_tokenizer_of(state.imported_from, path, content, train_->tokenizer_hash(), environment_.log);
  } else {
    require_same_data(config_.data.train, content.step, content.data_fingerprint, train_->fingerprint());
  }
}

void TrainingRun::adopt_state(const CheckpointContent& content, const SavedState& state) {
  const RunConfig& saved = state.configuration;
  if (validation_fingerprint_.empty()) validation_fingerprint_ = state.validation_fingerprint;
  const bool counted_weights = validation_ && state.validation_fingerprint == validation_->fingerprint_with_weights();
  if (!state.validation_fingerprint.empty() && !counted_weights &&
      state.validation_fingerprint != validation_fingerprint_) {
    warn_of_changed_validation(content.step, state.validation_fingerprint);
  }
  // Older versions saved it for every run.
  if (state.bfloat16 && chooses_products(saved) && chooses_products(config_)) adopt_products(*state.bfloat16);
  library_choices_ = state.library_choices;
  origin_ = state.origin;
  first_step_ = content.step + 1;
  saved_step_ = content.step;
}

// Only a warning: validation data does not affect what is learned.
void TrainingRun::warn_of_changed_validation(int64_t step, const std::string& before) const {
  if (!first_rank()) return;
  environment_.log.warning(
      fmt::format("data.validation: the data has changed since step {} was saved (fingerprint {}, now {}): held-out "
                  "losses of later steps are not comparable with earlier ones",
                  step, before, validation_fingerprint_));
  environment_.events.write("validation_changed",
                            {{"step", step}, {"before", before}, {"now", validation_fingerprint_}});
}

void TrainingRun::adopt_products(const Bfloat16Products& products) {
  const Bfloat16Products timed = stream_.cpu.bfloat16;
  const std::string replaced = restore_products(products, environment_.world, stream_.cpu);
  if (!first_rank()) return;
  if (!replaced.empty()) {
    environment_.log.warning(
        fmt::format("bfloat16 is multiplied differently than before, because not every processor of this run supports "
                    "the earlier method: {}; results will differ in the last bits from an uninterrupted run",
                    replaced));
  }
  if (stream_.cpu.bfloat16 != timed) {
    environment_.log.info("bfloat16 matrix products, as before: " + text_of(stream_.cpu.bfloat16));
  }
}

// On rank 0: logs how the configuration differs from the saved one.
void TrainingRun::log_resume(const SavedState& state) const {
  const bool imported = !state.imported_from.empty();
  if (!imported) {
    for (const ChangedKey& changed : changed_keys(state.configuration, config_)) {
      environment_.log.info(fmt::format("resume: {} was {}, is {}", changed.key, changed.before, changed.after));
    }
    warn_of_changed_schedule(state.configuration, config_, first_step_, environment_.log);
  }
  warn_of_passed_stop(config_.train, saved_step_, environment_.log);
  environment_.events.write("resume", {{"step", saved_step_}});
  environment_.log.info(
      fmt::format("resuming after step {}{}", saved_step_, imported ? ", imported from " + state.imported_from : ""));
}

// The run ended before its first save, or somebody has moved or removed its steps.
void TrainingRun::warn_of_missing_steps() const {
  std::error_code missing;
  const uintmax_t row_bytes = std::filesystem::file_size(config_.output.directory + "/metrics.jsonl", missing);
  if (missing || row_bytes == 0) return;
  environment_.log.warning(
      fmt::format("metrics.jsonl has lines of earlier steps, but {} contains no checkpoint: training starts at step 1, "
                  "and these lines move to metrics.superseded.jsonl",
                  checkpoints()));
}

void TrainingRun::initialise_parameters() {
  std::optional<Progress> progress;
  trainer_->engine().parameters().initialise(static_cast<uint64_t>(config_.train.seed), [&](int64_t done, int64_t of) {
    if (!first_rank()) return;
    if (!progress) progress.emplace("initial weights", static_cast<uint64_t>(of), "values");
    progress->update(static_cast<uint64_t>(done));
  });
}

void TrainingRun::rename_unusable_steps() const {
  for (const auto& [step, fault] : unusable_steps_) {
    const std::string directory = checkpoints() + "/" + step_name(step);
    const std::string path = set_aside(directory, "broken-");
    environment_.log.warning(directory + " is unusable and was renamed to " + path);
    environment_.events.write("checkpoint_broken", {{"step", step}, {"reason", fault}, {"now", path}});
  }
}

// False if there is no step to resume from.
bool TrainingRun::resume() {
  const std::optional<CheckpointContent> content = load_step();
  if (!content) return false;
  SavedState state;
  run_on_all_ranks(environment_.world, [&] {
    state = saved_state(content->state_json, checkpoints());
    require_resumable_from(*content, state);
    trainer_->restore(state.trainer);
  });
  adopt_state(*content, state);
  run_on_first_rank(environment_.world, [&] {
    log_resume(state);
    rename_unusable_steps();
    supersede_later_steps(checkpoints(), content->step, environment_.log);
    supersede(content->step);
  });
  return true;
}

// Faults here are a rank's own, of its device.
void TrainingRun::begin() {
  initialise_parameters();
  if (!first_rank()) return;
  warn_of_missing_steps();
  supersede(0);
}

void TrainingRun::write_configuration() const {
  if (first_rank() && first_step_ <= config_.train.steps + 1) {
    write_file_durably(config_.output.directory + "/config.conf", to_config_text(config_));
  }
}

// Sets aside what was reported for later steps.
void TrainingRun::supersede(int64_t step) {
  rows_ = supersede_metrics(config_.output.directory, step);
  supersede_later_steps(evaluations_of(config_.output.directory), step, environment_.log);
}

// Uses those of the checkpoint, otherwise those of an earlier start of this run, otherwise times them now.
void TrainingRun::choose_algorithms() {
  const std::string path = config_.output.directory + "/library_choices.json";
  std::string source = "the checkpoint's algorithms";
  if (library_choices_.empty()) {
    source = path;
    const bool reads = first_rank() && config_.device.kind == DeviceChoice::cuda && std::filesystem::exists(path);
    library_choices_ = environment_.world.broadcast_text(reads ? read_file(path) : std::string(), 0);
  }
  library_choices_ =
      shiftron::choose_algorithms(config_, *trainer_, training_batches(config_, layout_, dp(), first_step_, *train_),
                                  environment_.world, library_choices_, source, environment_.log);
  if (first_rank() && !library_choices_.empty()) write_file_durably(path, library_choices_);
}

void TrainingRun::measure_peak() {
  environment_.world.barrier();  // all at once, as in training
  Libraries& libraries = trainer_->engine().libraries();
  libraries.time_candidates(config_.train.deterministic == Deterministic::off);
  std::vector<double> measured;
  for (int run = 0; run < 3; ++run)
    measured.push_back(measure_matmul_peak(stream_, product_type(config_.train.precision, stream_.cpu)));
  rates_.operations = credible_peak(measured);
  libraries.time_candidates(false);
  if (environment_.profile) rates_.bytes = measure_copy_bandwidth(stream_);
  peak_ = 0;
  for (const std::string& rate : environment_.world.gather_text(fmt::format("{}", rates_.operations), 0)) {
    peak_ += std::stod(rate);
  }
}

void TrainingRun::announce() const {
  if (!first_rank()) return;
  const std::string peak = std::isnan(peak_)
                               ? "GEMM peak unknown, as other work ran during its measurement; no share of it is shown"
                               : fmt::format("GEMM peak of all ranks {:.0f} GFLOP/s", peak_ / 1e9);
  environment_.log.info(
      fmt::format("rank 0 holds {:.1f} MB; {}", static_cast<double>(ledger_.memory_total()) / 1e6, peak));
  const std::vector<DataSource>& sources = config_.data.train;
  const std::vector<double> passes = train_->passes(config_.train.steps * config_.train.global_batch);
  std::string read;  // how often each source is read
  for (size_t i = 0; i < sources.size(); ++i) {
    read += fmt::format("{}{:.3g} times{}", i == 0 ? "" : ", ", passes[i],
                        sources.size() > 1 ? " " + sources[i].directory : "");
  }
  environment_.log.info(
      fmt::format("training data: {} windows of {} tokens ({} tokens dropped); {} steps read the data {}",
                  thousands(train_->windows()), config_.train.sequence_length, train_->dropped_tokens(),
                  thousands(config_.train.steps), read));
}

}  // namespace shiftron
