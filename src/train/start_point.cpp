// Resumes from a saved step, or begins.
#include "train/start_point.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/restore.h"
#include "checkpoint/steps.h"
#include "config/changed_keys.h"
#include "core/progress.h"
#include "kernels/choose_products.h"
#include "parallel/agree.h"
#include "run/resume.h"
#include "run/run_files.h"
#include "train/device.h"

namespace shiftron {
namespace {

// One call of find_start().
class Start {
 public:
  Start(const RunConfig& config, const RunEnvironment& environment, RunData& data, Trainer& trainer, Stream& stream)
      : config_(config), environment_(environment), data_(data), trainer_(trainer), stream_(stream) {}
  StartPoint find() {
    if (!resume()) begin();
    return std::move(point_);
  }

 private:
  std::optional<CheckpointContent> load_step();
  void require_resumable_from(const CheckpointContent& content, const SavedState& state) const;
  void adopt_state(const CheckpointContent& content, const SavedState& state);
  void warn_of_changed_validation(int64_t step, const std::string& before) const;
  void adopt_products(const Bfloat16Products& products);
  void log_resume(const SavedState& state) const;
  void warn_of_missing_steps() const;
  void initialise_parameters();
  void rename_unusable_steps() const;
  bool resume();
  void begin();
  void supersede(int64_t step);
  bool first_rank() const { return environment_.world.rank() == 0; }
  std::string checkpoints() const { return checkpoints_of(config_.output.directory); }

  const RunConfig& config_;
  const RunEnvironment& environment_;
  RunData& data_;
  Trainer& trainer_;
  Stream& stream_;
  StartPoint point_;
  std::vector<std::pair<int64_t, std::string>> unusable_steps_;  // rank 0's: steps that were rejected, and why
};

// The step that the run resumes from, with its parameters loaded; unset: the run begins.
std::optional<CheckpointContent> Start::load_step() {
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
  Engine& engine = trainer_.engine();
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
void Start::require_resumable_from(const CheckpointContent& content, const SavedState& state) const {
  const bool imported = !state.imported_from.empty();
  const std::string path = checkpoints() + "/" + step_name(content.step);
  require_resumable(state.configuration, config_, imported, path);
  if (imported) {
    require_tokenizer_of(state.imported_from, path, content, data_.train(), environment_.log);
  } else {
    require_same_data(config_.data.train, content.step, content.data_fingerprint, data_.train().fingerprint());
  }
}

void Start::adopt_state(const CheckpointContent& content, const SavedState& state) {
  const RunConfig& saved = state.configuration;
  if (data_.keep_validation_fingerprint(state.validation_fingerprint)) {
    warn_of_changed_validation(content.step, state.validation_fingerprint);
  }
  // Older versions saved it for every run.
  if (state.bfloat16 && chooses_products(saved) && chooses_products(config_)) adopt_products(*state.bfloat16);
  point_.library_choices = state.library_choices;
  point_.origin = state.origin;
  point_.first_step = content.step + 1;
  point_.saved_step = content.step;
}

// Only a warning: validation data does not affect what is learned.
void Start::warn_of_changed_validation(int64_t step, const std::string& before) const {
  if (!first_rank()) return;
  environment_.log.warning(
      fmt::format("data.validation: the data has changed since step {} was saved (fingerprint {}, now {}): held-out "
                  "losses of later steps are not comparable with earlier ones",
                  step, before, data_.validation_fingerprint()));
  environment_.events.write("validation_changed",
                            {{"step", step}, {"before", before}, {"now", data_.validation_fingerprint()}});
}

void Start::adopt_products(const Bfloat16Products& products) {
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
void Start::log_resume(const SavedState& state) const {
  const bool imported = !state.imported_from.empty();
  if (!imported) {
    for (const ChangedKey& changed : changed_keys(state.configuration, config_)) {
      environment_.log.info(fmt::format("resume: {} was {}, is {}", changed.key, changed.before, changed.after));
    }
    warn_of_changed_schedule(state.configuration, config_, point_.first_step, environment_.log);
  }
  warn_of_passed_stop(config_.train, point_.saved_step, environment_.log);
  environment_.events.write("resume", {{"step", point_.saved_step}});
  environment_.log.info(fmt::format("resuming after step {}{}", point_.saved_step,
                                    imported ? ", imported from " + state.imported_from : ""));
}

// The run ended before its first save, or somebody has moved or removed its steps.
void Start::warn_of_missing_steps() const {
  std::error_code missing;
  const uintmax_t row_bytes = std::filesystem::file_size(config_.output.directory + "/metrics.jsonl", missing);
  if (missing || row_bytes == 0) return;
  environment_.log.warning(
      fmt::format("metrics.jsonl has lines of earlier steps, but {} contains no checkpoint: training starts at step 1, "
                  "and these lines move to metrics.superseded.jsonl",
                  checkpoints()));
}

void Start::initialise_parameters() {
  std::optional<Progress> progress;
  trainer_.engine().parameters().initialise(static_cast<uint64_t>(config_.train.seed), [&](int64_t done, int64_t of) {
    if (!first_rank()) return;
    if (!progress) progress.emplace("initial weights", static_cast<uint64_t>(of), "values");
    progress->update(static_cast<uint64_t>(done));
  });
}

void Start::rename_unusable_steps() const {
  for (const auto& [step, fault] : unusable_steps_) {
    const std::string directory = checkpoints() + "/" + step_name(step);
    const std::string path = set_aside(directory, "broken-");
    environment_.log.warning(directory + " is unusable and was renamed to " + path);
    environment_.events.write("checkpoint_broken", {{"step", step}, {"reason", fault}, {"now", path}});
  }
}

// False if there is no step to resume from.
bool Start::resume() {
  const std::optional<CheckpointContent> content = load_step();
  if (!content) return false;
  SavedState state;
  run_on_all_ranks(environment_.world, [&] {
    state = saved_state(content->state_json, checkpoints());
    require_resumable_from(*content, state);
    trainer_.restore(state.trainer);
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
void Start::begin() {
  initialise_parameters();
  if (!first_rank()) return;
  warn_of_missing_steps();
  supersede(0);
}

// Sets aside what was reported for later steps.
void Start::supersede(int64_t step) {
  point_.rows = supersede_metrics(config_.output.directory, step);
  supersede_later_steps(evaluations_of(config_.output.directory), step, environment_.log);
}

}  // namespace

StartPoint find_start(const RunConfig& config, const RunEnvironment& environment, RunData& data, Trainer& trainer,
                      Stream& stream) {
  return Start(config, environment, data, trainer, stream).find();
}

}  // namespace shiftron
