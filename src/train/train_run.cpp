// The loop around Trainer::step.
#include "train/train_run.h"

#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/restore.h"
#include "checkpoint/save.h"
#include "core/file.h"
#include "core/hash.h"
#include "data/loader.h"
#include "parallel/agree.h"
#include "train/learning_rate.h"
#include "train/tensorboard.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Loader open_loader(const RunConfig& config, const std::vector<DataSource>& sources, bool shuffle) {
  return Loader(sources, config.train.sequence_length, static_cast<uint64_t>(config.train.seed),
                config.data.document_reset, shuffle);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string thousands(double value) {
  std::string text = std::to_string(static_cast<int64_t>(value));
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
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
  void warn_of_new_end(const RunConfig& saved) const;
  void announce() const;
  void measure_peak();
  BatchReader reader(Loader& loader, int64_t step);
  void report(int64_t step, double step_seconds);
  void write_metrics(const nlohmann::ordered_json& line, int64_t step, const TensorBoard::Scalars& scalars);
  void evaluate(int64_t step);
  bool save(int64_t step);
  bool stop_asked(int64_t step) const;
  bool wants_save(int64_t step) const;
  bool first_rank() const { return environment_.world.rank() == 0; }
  std::string checkpoints() const { return config_.output.directory + "/checkpoints"; }
  nlohmann::ordered_json taps_json(const StepResult& result) const;

  const RunConfig& config_;
  const RunEnvironment& environment_;
  ParallelLayout layout_;
  std::optional<Loader> train_, validation_;
  Ledger ledger_;
  Stream stream_;
  MemoryPlan plan_;
  std::unique_ptr<Trainer> trainer_;
  JsonLines metrics_;
  bool metrics_fail_ = false;
  TensorBoard tensorboard_;
  double peak_ = 0;         // operations per second of all ranks
  int64_t first_step_ = 1;  // of this process
  int64_t saved_step_ = -1;
  bool last_save_failed_ = false;
  bool stop_ = false;
  Clock::time_point started_ = Clock::now();
};

TrainingRun::TrainingRun(const RunConfig& config, const RunEnvironment& environment)
    : config_(config),
      environment_(environment),
      layout_(make_layout(config.parallel, environment.world.size())),
      stream_{.device = DeviceKind::cpu, .ledger = &ledger_, .threads = environment.threads} {
  all_agree(environment.world, [&] {
    train_.emplace(open_loader(config, config.data.train, true));
    if (config.evaluation.every > 0) validation_.emplace(open_loader(config, config.data.validation, false));
    check_vocabulary();
  });
  all_agree(environment.world, [&] { open_directory(); });
  write_start();
  if (config.train.precision == Precision::bf16) {
    // One choice for all ranks: bits depend on it.
    stream_.bfloat16_matmul = environment.world.broadcast_text(bfloat16_matmul_pays(stream_) ? "1" : "0", 0) == "1";
  }
  Ledger planned;
  plan_ = plan_memory(config, layout_, environment.world.rank(), environment.threads, planned);
  trainer_ = std::make_unique<Trainer>(config, make_groups(environment.world, layout_, config.model.kv_heads), stream_,
                                       plan_);
}

void TrainingRun::open_directory() {
  const std::string logs = config_.output.directory + "/logs";
  const std::string log = fmt::format("{}/rank-{:05}.log", logs, environment_.world.rank());
  try {
    std::filesystem::create_directories(logs);
    FileDescriptor::open_for_appending(log);
    environment_.log.add_file(log);
    if (first_rank()) metrics_ = JsonLines(config_.output.directory + "/metrics.jsonl");
  } catch (const std::exception& error) {
    throw_bad_input("output.directory ", config_.output.directory, " cannot be written (", error.what(),
                    "); give another, or make room in it");
  }
}

// Who runs where: the first line of every start in events.jsonl.
void TrainingRun::write_start() const {
  const std::vector<std::string> names = environment_.world.gather_text(host_name(), 0);
  if (!first_rank()) return;
  std::map<std::string, int> hosts;  // ranks on each
  for (const std::string& name : names) ++hosts[name];
  environment_.events.write(
      "start", {{"ranks", layout_.ranks()},
                {"layout", {{"tp", layout_.tp}, {"cp", layout_.cp}, {"dp", layout_.dp}, {"pp", layout_.pp}}},
                {"hosts", hosts},
                {"threads", environment_.threads},
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
  Communicator& world = environment_.world;
  ParameterSet& parameters = trainer_->engine().parameters();
  std::optional<CheckpointContent> content;
  if (choice.kind == Kind::never) {
    const bool there = world.broadcast_text(list_steps(checkpoints()).empty() ? "0" : "1", 0) == "1";
    if (there) {
      throw_bad_input(checkpoints(), " holds steps and checkpoint.resume=never; choose another output.directory, or "
                      "checkpoint.resume=auto to go on");
    }
  } else {
    if (first_rank()) sweep_temporaries(checkpoints(), environment_.log);
    world.barrier();
    content = load_checkpoint(checkpoints(), choice.kind == Kind::step ? std::optional(choice.step) : std::nullopt,
                              parameters, world, environment_.log);
  }
  if (!content) {
    parameters.initialise(static_cast<uint64_t>(config_.train.seed));
  } else {
    const nlohmann::json state = nlohmann::json::parse(content->state_json);
    const RunConfig saved = config_from_json(state.at("configuration").dump(), checkpoints());
    require_resumable(saved, config_);
    if (content->data_fingerprint != train_->fingerprint()) {
      throw_bad_input("the data has changed since step ", content->step, " was saved (fingerprint ",
                      content->data_fingerprint, ", now ", train_->fingerprint(),
                      "); restore the dataset, or start a new run");
    }
    trainer_->restore_state(state.at("trainer").dump());
    if (state.contains("bfloat16_matmul")) stream_.bfloat16_matmul = state["bfloat16_matmul"].get<bool>();
    first_step_ = content->step + 1;
    saved_step_ = content->step;
    if (first_rank()) {
      for (const ChangedKey& changed : changed_keys(saved, config_)) {
        environment_.log.info(fmt::format("resume: {} was {}, is {}", changed.key, changed.before, changed.after));
      }
      warn_of_new_end(saved);
      environment_.events.write("resume", {{"step", content->step}});
      environment_.log.info(fmt::format("resuming behind step {}", content->step));
      supersede_later_steps(checkpoints(), content->step, environment_.log);
      supersede_metrics(config_.output.directory, content->step);
    }
    world.barrier();
  }
  if (first_rank()) {
    if (!content) supersede_metrics(config_.output.directory, 0);  // of a run that ended before its first save
    metrics_ = JsonLines(config_.output.directory + "/metrics.jsonl");
    tensorboard_ = TensorBoard(config_.output.directory + "/tensorboard", first_step_);
    write_file_durably(config_.output.directory + "/config.conf", to_config_text(config_));
  }
  parameters.refresh_weights(stream_);
}

void TrainingRun::warn_of_new_end(const RunConfig& saved) const {
  const OptimizerSection& optimizer = config_.optimizer;
  const int64_t before = saved.train.steps, now = config_.train.steps;
  if (before == now || optimizer.decay_steps > 0 || optimizer.schedule == LearningRateSchedule::constant) return;
  environment_.log.warning(
      fmt::format("train.steps was {}, is {}: optimizer.schedule={} with decay_steps=0 follows the end of the run, so "
                  "that step {} has the "
                  "learning rate {:.6g}, it had {:.6g} before; train.steps={} keeps the curve",
                  before, now, to_string(optimizer.schedule), first_step_, learning_rate(optimizer, now, first_step_),
                  learning_rate(optimizer, before, std::min(first_step_, before)), before));
}

void TrainingRun::measure_peak() {
  environment_.world.barrier();  // all at once, as in training
  Ledger unused;
  Stream stream = stream_;
  stream.ledger = &unused;
  const DType dtype = config_.train.precision == Precision::bf16 && stream_.bfloat16_matmul ? DType::bfloat16
                                                                                           : DType::float32;
  Buffer sum(DeviceKind::cpu, size_of(DType::float64), unused, "peak");
  Tensor value = sum.tensor(0, DType::float64, {1});
  value.data<double>()[0] = measure_matmul_peak(stream, dtype);
  environment_.world.all_reduce(stream, InOut(value), Reduction::sum).wait();
  peak_ = value.data<double>()[0];
}

void TrainingRun::announce() const {
  if (!first_rank()) return;
  int64_t local = 0;
  for (const auto& [category, bytes] : ledger_.memory()) local += bytes;
  environment_.log.info(
      fmt::format("{} ranks: tp {} · pp {} · dp {}; rank 0 holds {:.1f} MB; {} windows of {} tokens in an epoch ({} "
                  "tokens dropped); "
                  "GEMM peak {:.0f} GFLOP/s",
                  layout_.ranks(), layout_.tp, layout_.pp, layout_.dp, static_cast<double>(local) / 1e6,
                  thousands(static_cast<double>(train_->windows())), config_.train.sequence_length,
                  train_->dropped_tokens(), peak_ / 1e9));
}

BatchReader TrainingRun::reader(Loader& loader, int64_t step) {
  return [this, &loader, step](int index, HostBatch& batch) {
    const int64_t sample = first_sample(config_, layout_.dp, step, index, trainer_->engine().groups().at.dp);
    loader.read(sample, config_.train.micro_batch, batch.ids.data(), batch.targets.data(),
                batch.document_starts.data());
  };
}

void TrainingRun::evaluate(int64_t step) {
  const int64_t round = config_.train.micro_batch * layout_.dp;  // sequences
  const int64_t wanted = config_.evaluation.sequences;
  const int microbatches = static_cast<int>((wanted + round - 1) / round);
  const auto section = environment_.watchdog.enter(fmt::format("evaluation at step {}", step),
                                                   config_.fault.setup_deadline);
  const int64_t available = validation_->windows();
  const BatchReader read = [&](int index, HostBatch& batch) {
    const int64_t first = index * round + trainer_->engine().groups().at.dp * config_.train.micro_batch;
    validation_->read(first, config_.train.micro_batch, batch.ids.data(), batch.targets.data(),
                      batch.document_starts.data());
    for (int64_t i = 0; i < config_.train.micro_batch; ++i) {  // rows that fill up are not counted
      if (first + i < std::min(wanted, available)) continue;
      const int64_t length = config_.train.sequence_length;
      std::fill_n(batch.targets.begin() + i * length, length, -1);
    }
  };
  const double loss = trainer_->evaluate(microbatches, read);
  if (!first_rank()) return;
  write_metrics({{"step", step}, {"validation_loss", json_number(loss)}}, step, {{"validation_loss", loss}});
  environment_.log.info(fmt::format("step {}: validation loss {:.4f}", step, loss));
}

bool TrainingRun::save(int64_t step) {
  if (saved_step_ == step) return true;
  const auto section = environment_.watchdog.enter(fmt::format("saving step {}", step),
                                                   config_.fault.checkpoint_deadline);
  const nlohmann::json state = {{"configuration", nlohmann::json::parse(to_json(config_))},
                                {"trainer", nlohmann::json::parse(trainer_->state_json())},
                                {"consumed_samples", step * config_.train.global_batch},
                                {"bfloat16_matmul", stream_.bfloat16_matmul}};
  const CheckpointContent content{.step = step,
                                  .configuration = to_config_text(config_),
                                  .state_json = state.dump(),
                                  .tokenizer_model = train_->tokenizer_bytes(),
                                  .data_fingerprint = train_->fingerprint(),
                                  .code_version = environment_.code_version};
  const SaveResult result =
      save_checkpoint(checkpoints(), content, trainer_->engine().parameters(), environment_.world,
                      {.keep = config_.checkpoint.keep, .keep_every = config_.checkpoint.keep_every}, environment_.log);
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

nlohmann::ordered_json TrainingRun::taps_json(const StepResult& result) const {
  static constexpr const char* kNames[] = {"query", "key", "value"};
  nlohmann::ordered_json shift = nlohmann::ordered_json::object();
  for (size_t layer = 0; layer < result.taps.size(); ++layer) {
    for (size_t stream = 0; stream < 3; ++stream) {
      if (!result.taps[layer][stream].empty()) {
        shift[std::to_string(layer)][kNames[stream]] = result.taps[layer][stream];
      }
    }
  }
  return shift;
}

void TrainingRun::report(int64_t step, double step_seconds) {
  const StepResult result = trainer_->result(step);
  stop_ = stop_ || result.stop;
  if (result.skipped) {
    if (first_rank()) {
      environment_.log.warning(fmt::format("step {} was skipped: loss {}, gradient norm {}, {} counted targets", step,
                                           result.loss, result.gradient_norm, result.counted));
      environment_.events.write("skip", {{"step", step}});
    }
  }
  const TimeSplit times = ledger_.take_times();
  if (!first_rank()) return;
  const TrainSection& train = config_.train;
  const double tokens = static_cast<double>(train.global_batch * train.sequence_length);
  const double rate = tokens / step_seconds;
  const double utilization =
      rate * static_cast<double>(model_flops_per_token(config_.model, train.sequence_length)) / peak_;
  nlohmann::ordered_json norms = nlohmann::ordered_json::object();
  const std::vector<std::string> names = trainer_->group_names();
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != "head" || !config_.model.tie_embeddings) norms[names[i]] = json_number(result.group_norms[i]);
  }
  const double rate_used = learning_rate(config_.optimizer, train.steps, step);
  const double compute = std::max(0.0, step_seconds - times.communication - times.wait - times.data);
  const nlohmann::ordered_json line = {
      {"step", step},
      {"tokens", step * train.global_batch * train.sequence_length},
      {"loss", json_number(result.loss)},
      {"gradient_norm", json_number(result.gradient_norm)},
      {"learning_rate", rate_used},
      {"tokens_per_second", rate},
      {"step_seconds", step_seconds},
      {"model_flops_utilization", utilization},
      {"memory_bytes", ledger_.memory()},
      {"time_seconds",
       {{"compute", compute}, {"communication", times.communication}, {"wait", times.wait}, {"data", times.data}}},
      {"layer_gradient_norms", norms},
      {"shift", taps_json(result)},
      {"skipped", trainer_->skipped()}};
  write_metrics(line, step,
                {{"loss", result.loss},
                 {"gradient_norm", result.gradient_norm},
                 {"learning_rate", rate_used},
                 {"tokens_per_second", rate}});
  if (step % config_.output.log_every != 0 && step != train.steps) return;
  const double left = seconds_since(started_) / static_cast<double>(step - first_step_ + 1) *
                      static_cast<double>(train.steps - step);
  if (environment_.show_progress) {
    environment_.show_progress(fmt::format("step {}/{}  loss {:.4f}  norm {:.3f}  {} tokens/s  {:.0f} % of GEMM peak  {} left",
                                           step, train.steps, result.loss, result.gradient_norm, thousands(rate),
                                           utilization * 100, duration_text(left)));
  }
}

// A disk that is full ends no run: the lines are lost until there is room again.
void TrainingRun::write_metrics(const nlohmann::ordered_json& line, int64_t step, const TensorBoard::Scalars& scalars) {
  tensorboard_.write(step, scalars);
  try {
    metrics_.write(line);
    metrics_fail_ = false;
  } catch (const Error& error) {
    if (!metrics_fail_) {
      environment_.log.warning(fmt::format("{}; lines of metrics.jsonl are lost from step {} on", error.what(), step));
    }
    metrics_fail_ = true;
  }
}

bool TrainingRun::wants_save(int64_t step) const {
  const int64_t every = config_.checkpoint.every;
  if (step == config_.train.stop_at && step > 0) return true;
  return every > 0 && (step % every == 0 || step == config_.train.steps);
}

ExitCode TrainingRun::run() {
  {
    const auto section = environment_.watchdog.enter("resume", config_.fault.setup_deadline);
    told_by_first(environment_.world, [&] { resume(); });
    measure_peak();
  }
  announce();
  if (first_step_ > config_.train.steps) {
    if (first_rank()) environment_.log.info(fmt::format("step {} is the last one; nothing to do", config_.train.steps));
    return ExitCode::done;
  }
  if (config_.checkpoint.every > 0 && first_step_ == 1) save(0);
  StepDeadline automatic(config_.fault.setup_deadline);
  started_ = Clock::now();
  ledger_.take_times();
  for (int64_t step = first_step_; step <= config_.train.steps; ++step) {
    const double deadline = config_.fault.step_deadline > 0 && step > first_step_ ? config_.fault.step_deadline
                                                                                  : automatic.seconds();
    const Clock::time_point begin = Clock::now();
    {
      const auto section = environment_.watchdog.enter(fmt::format("step {}", step), deadline);
      trainer_->step(step, reader(*train_, step), environment_.stop_requested());
    }
    const double step_seconds = seconds_since(begin);
    automatic.add(step_seconds);
    report(step, step_seconds);
    if (trainer_->skipped_in_row() >= config_.fault.non_finite_in_row) {
      if (!first_rank()) leave_to_another(ExitCode::non_finite);
      throw Error(fmt::format("{} steps in a row had no finite loss and gradient, the last is step {}; lower "
                              "optimizer.learning_rate, or resume from an older step (checkpoint.resume=STEP)",
                              trainer_->skipped_in_row(), step),
                  ExitCode::non_finite);
    }
    const bool stopping = stop_ || step == config_.train.stop_at;
    const int64_t every = config_.evaluation.every;
    if (every > 0 && (step % every == 0 || step == config_.train.steps)) evaluate(step);
    if (wants_save(step) || stopping) save(step);
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
    throw_crash("the last step could not be saved; free space and start again to repeat the end");
  }
  return ExitCode::done;
}

}  // namespace

ExitCode run_training(const RunConfig& config, const RunEnvironment& environment) {
  auto setup = environment.watchdog.enter("set-up", config.fault.setup_deadline);
  TrainingRun run(config, environment);
  setup.leave();
  return run.run();
}

std::string dump_step(const RunConfig& config, int64_t step) {
  Loader loader = open_loader(config, config.data.train, true);
  const int64_t length = config.train.sequence_length;
  std::vector<int32_t> ids(static_cast<size_t>(length)), targets(ids.size());
  std::vector<uint8_t> starts(ids.size());
  nlohmann::ordered_json dump = {{"step", step}};
  for (const char* key : {"ids", "targets", "document_starts"}) dump[key] = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < config.train.global_batch; ++i) {
    loader.read((step - 1) * config.train.global_batch + i, 1, ids.data(), targets.data(), starts.data());
    dump["ids"].push_back(ids);
    dump["targets"].push_back(targets);
    nlohmann::ordered_json offsets = nlohmann::ordered_json::array();
    for (size_t row = 0; row < starts.size(); ++row) {
      if (starts[row] != 0) offsets.push_back(row);
    }
    dump["document_starts"].push_back(offsets);
  }
  return dump.dump();
}

}  // namespace shiftron
