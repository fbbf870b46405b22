// The table of all configuration keys.
#include "train/options.h"

#include <type_traits>
#include <utility>

#include "core/check.h"
#include "core/has_cuda.h"
#include "data/utf8.h"
#include "train/option_value.h"

namespace shiftron {
namespace {

constexpr Limits kSize = between(1, kLargestCount);
constexpr Limits kCount = between(0, kLargestCount);
constexpr Limits kLayers = between(1, 4096);  // each has parameters of its own, in the plan too
constexpr Limits kFraction = between(0, 1);
// Range of values that are neither 0 nor infinite in float32.
constexpr double kSmallestFloat = 1e-37, kLargestFloat = 1e37;
constexpr Limits kFloat = between(kSmallestFloat, kLargestFloat);
constexpr Limits kFloatOrZero = between(0, kLargestFloat);
constexpr Limits kBelowOne = {.low = 0, .high = 1, .high_open = true};

// In a file, '#' begins a comment and outer blanks are stripped, so such a text would not read back. Checkpoints and
// logs hold it in JSON, which is UTF-8.
std::string text_fault(const std::string& text) {
  if (!is_utf8(text)) return "must be UTF-8; rename it";
  if (text.find_first_of("#\n\r") != std::string::npos) return "must not hold '#' or a line break";
  constexpr const char* kBlank = " \t";
  if (text.find_first_not_of(kBlank) != 0 || text.find_last_not_of(kBlank) + 1 != text.size()) {
    return "must be a text without blanks at its ends";
  }
  const bool is_quoted =
      text.size() > 1 && text.front() == text.back() && (text.front() == '"' || text.front() == '\'');
  if (is_quoted) return "is written without quotes";
  return "";
}

template <typename Value>
std::string value_fault(const Value& value, const Limits& limits) {
  if constexpr (std::is_same_v<Value, bool>) {
    return "";
  } else if constexpr (std::is_arithmetic_v<Value>) {
    return limits.fault(static_cast<double>(value));
  } else if constexpr (std::is_same_v<Value, std::optional<int64_t>>) {
    return value ? limits.fault(static_cast<double>(*value)) : "";
  } else if constexpr (std::is_same_v<Value, Betas>) {
    const std::string first = limits.fault(value.first);
    return first.empty() ? limits.fault(value.second) : first;
  } else if constexpr (std::is_same_v<Value, ResumeChoice>) {
    return limits.fault(static_cast<double>(value.step));
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return value.empty() ? "" : text_fault(value);
  } else if constexpr (std::is_same_v<Value, std::vector<int64_t>>) {
    for (const int64_t entry : value) {
      if (const std::string fault = limits.fault(static_cast<double>(entry)); !fault.empty()) return "entries " + fault;
    }
    return "";
  } else if constexpr (std::is_same_v<Value, std::vector<DataSource>>) {
    for (const DataSource& source : value) {
      if (const std::string fault = text_fault(source.directory); !fault.empty()) return "path " + fault;
    }
    return "";
  } else {
    return "";  // an enumeration holds only valid values
  }
}

// Sections and keys that may differ when a run resumes.
bool may_differ_on_resume(const std::string& key) {
  for (const char* allowed :
       {"parallel.", "evaluation.", "checkpoint.", "output.", "device.", "fault.", "train.micro_batch", "train.steps",
        "train.stop_at", "data.train", "data.validation"}) {  // their fingerprints are compared instead
    const std::string text = allowed;
    if (text.back() == '.' ? key.rfind(text, 0) == 0 : key == text) return true;
  }
  return false;
}

// `access` maps a RunConfig& to the value's place in it.
template <typename Access>
Option option(std::string key, std::string help, Access access, Limits limits = {}) {
  using Value = std::remove_cvref_t<decltype(access(std::declval<RunConfig&>()))>;
  Option made;
  made.key = std::move(key);
  made.help = std::move(help);
  made.values = placeholder(Value{});
  made.is_list = std::is_same_v<Value, std::vector<DataSource>>;
  made.is_text = !std::is_arithmetic_v<Value> && !std::is_same_v<Value, std::optional<int64_t>>;
  made.may_differ = may_differ_on_resume(made.key);
  made.read = [access](RunConfig& config, const std::string& text) { return read_value(text, access(config)); };
  made.write = [access](const RunConfig& config) { return write_value(access(config)); };
  made.check = [access, limits](const RunConfig& config) { return value_fault(access(config), limits); };
  made.reset = [access](RunConfig& config) { access(config) = access(RunConfig{}); };
  return made;
}

// Marks a number whose 0 means "not given" and is not written.
Option unset_at_zero(Option option) {
  option.write = [write = option.write](const RunConfig& config) {
    std::vector<std::string> texts = write(config);
    return texts == std::vector<std::string>{"0"} ? std::vector<std::string>{} : texts;
  };
  return option;
}

Option required(Option option) {
  option.required = true;
  return option.is_text ? option : unset_at_zero(std::move(option));
}

}  // namespace

// The place of a value: PLACE(train.steps).
#define PLACE(path)            \
  [](auto&& config) -> auto& { \
    return config.path;        \
  }

std::vector<Option> option_table() {
  return {
      required(option("model.layers", "transformer layers", PLACE(model.layers), kLayers)),
      required(option("model.hidden", "width of the residual stream", PLACE(model.hidden), kSize)),
      required(option("model.heads", "query heads", PLACE(model.heads), kSize)),
      unset_at_zero(option("model.kv_heads", "key and value heads (default: heads)", PLACE(model.kv_heads), kSize)),
      unset_at_zero(
          option("model.head_dim", "width of a head (default: hidden / heads)", PLACE(model.head_dim), kSize)),
      required(option("model.ffn", "width of the feed-forward layer", PLACE(model.ffn), kSize)),
      required(option("model.vocab", "tokens in the vocabulary", PLACE(model.vocab), kSize)),
      option("model.rope_base", "base of the rotary position angles", PLACE(model.rope_base), above(0)),
      option("model.norm_epsilon", "added to the mean square inside the root", PLACE(model.norm_epsilon), kFloat),
      option("model.tie_embeddings", "use the embedding as output head", PLACE(model.tie_embeddings)),
      option("model.init_std", "standard deviation of initial matrices", PLACE(model.init_std), kFloat),

      option("shift.query", "previous tokens mixed into queries, 0 to 3", PLACE(model.shift.query), between(0, 3)),
      option("shift.key", "previous tokens mixed into keys, 0 to 3", PLACE(model.shift.key), between(0, 3)),
      option("shift.value", "previous tokens mixed into values, 0 to 3", PLACE(model.shift.value), between(0, 3)),
      option("shift.form", "taps: free, by a sigmoid, clamped to [0, 1] in forward, projected to it by each update",
             PLACE(model.shift.form)),
      option("shift.init", "initial taps", PLACE(model.shift.init)),
      option("shift.remainder", "tap that makes the initial sum 1: the oldest, or that of the current token",
             PLACE(model.shift.remainder)),
      option("shift.reset", "where the shift restarts: where attention does, at documents, never",
             PLACE(model.shift.reset)),

      required(option("train.steps", "steps of the run", PLACE(train.steps), kSize)),
      required(option("train.global_batch", "sequences per step", PLACE(train.global_batch), kSize)),
      option("train.micro_batch", "sequences per forward pass of a rank", PLACE(train.micro_batch), kSize),
      required(option("train.sequence_length", "tokens per sequence", PLACE(train.sequence_length), kSize)),
      option("train.stop_at", "save and leave with exit code 75 after that step; the next start resumes there; 0 = never",
             PLACE(train.stop_at), kCount),
      option("train.precision", "numbers of activations and matrix products", PLACE(train.precision)),
      option("train.seed", "seed of initial weights and data order", PLACE(train.seed), at_least(0)),
      option("train.deterministic", "the same bits in each run of one command, in all layouts",
             PLACE(train.deterministic)),

      required(option("optimizer.learning_rate", "peak learning rate", PLACE(optimizer.learning_rate), kFloat)),
      option("optimizer.betas", "decay of first and second moment", PLACE(optimizer.betas), kBelowOne),
      option("optimizer.epsilon", "added to the root of the second moment", PLACE(optimizer.epsilon), kFloat),
      option("optimizer.weight_decay", "decay of matrices, embedding and head", PLACE(optimizer.weight_decay),
             kFloatOrZero),
      option("optimizer.shift_weight_decay", "decay of shift parameters", PLACE(optimizer.shift_weight_decay),
             kFloatOrZero),
      option("optimizer.shift_learning_rate_scale", "factor of the learning rate of shift parameters",
             PLACE(optimizer.shift_learning_rate_scale), kFloatOrZero),
      option("optimizer.clip", "largest gradient norm, 0 = off", PLACE(optimizer.clip), kFloatOrZero),
      option("optimizer.schedule", "learning rate after warm-up", PLACE(optimizer.schedule)),
      option("optimizer.warmup", "steps of linear warm-up", PLACE(optimizer.warmup), kCount),
      option("optimizer.decay_steps", "steps of the fall, 0 = to the last step; wsd: 0 = a fifth of the run",
             PLACE(optimizer.decay_steps), kCount),
      option("optimizer.final_fraction", "share of the peak that the fall ends at", PLACE(optimizer.final_fraction),
             kFraction),

      option("parallel.tp", "tensor-parallel ranks", PLACE(parallel.tp), between(1, 65536)),
      option("parallel.cp", "context-parallel ranks", PLACE(parallel.cp), between(1, 65536)),
      option("parallel.pp", "pipeline stages", PLACE(parallel.pp), between(1, 65536)),
      option("parallel.rank_order", "order of the axes: ranks of the first one are neighbours",
             PLACE(parallel.rank_order)),
      option("parallel.chunks", "model chunks per interleaved stage", PLACE(parallel.chunks), between(1, 65536)),
      option("parallel.zero", "1 = optimizer state divided over data-parallel ranks", PLACE(parallel.zero),
             between(0, 1)),
      option(
          "parallel.bucket_elements",
          "parameters that data-parallel ranks exchange together, 0 = 40 Mi, with more than 40 of them 1 Mi for each",
          PLACE(parallel.bucket_elements), kCount),
      option("parallel.pipeline", "pipeline schedule", PLACE(parallel.pipeline)),
      option("parallel.recompute",
             "what backward computes again, everywhere or of each stage: selective = gate and up, full = layers",
             PLACE(parallel.recompute)),
      option("parallel.stage_layers",
             "layers of each piece of the model in its order: pp of them, with interleaved pp * chunks, with zb-v 2 pp "
             "(default: equal work)",
             PLACE(parallel.stage_layers), kSize),

      required(option("data.train", "dataset directory and share of the blend, repeatable", PLACE(data.train))),
      option("data.validation", "dataset directory for evaluation, repeatable; each is also reported by itself",
             PLACE(data.validation)),
      option("data.document_reset", "cut attention and restart positions at documents", PLACE(data.document_reset)),

      option("evaluation.every", "steps between evaluations, 0 = never", PLACE(evaluation.every), kCount),
      unset_at_zero(option("evaluation.sequences",
                           "sequences of an evaluation, the first ones of each of data.validation (default: all)",
                           PLACE(evaluation.sequences), kSize)),
      option("evaluation.tasks",
             "benchmarks, files of own tasks, perplexity:FILE, joined by commas; evaluate --tasks list shows all",
             PLACE(evaluation.tasks)),
      option("evaluation.data", "folder of the tasks' files", PLACE(evaluation.data)),
      option("evaluation.fewshot", "examples before each item (default: what the task takes)",
             PLACE(evaluation.fewshot), kCount),
      unset_at_zero(option("evaluation.limit", "items of each task, or below 1 the share of them (default: all)",
                           PLACE(evaluation.limit), at_least(0))),
      option("evaluation.bos", "whether texts begin with the token of a document's beginning", PLACE(evaluation.bos)),
      unset_at_zero(option("evaluation.max_gen_toks", "tokens of a generated answer (default: what the task takes)",
                           PLACE(evaluation.max_gen_toks), kSize)),
      option("evaluation.boundary_fallback",
             "a continuation that merges into its context is encoded alone, not refused",
             PLACE(evaluation.boundary_fallback)),

      option("checkpoint.every", "steps between saves, 0 = at the end and on stops alone", PLACE(checkpoint.every),
             kCount),
      option("checkpoint.keep", "newest checkpoints kept, fewer where the disk has no room for one more",
             PLACE(checkpoint.keep), kSize),
      option("checkpoint.keep_every", "steps whose multiples are kept for ever, 0 = none", PLACE(checkpoint.keep_every),
             kCount),
      option("checkpoint.asynchronous", "write while training continues", PLACE(checkpoint.asynchronous)),
      option("checkpoint.resume", "what to resume from", PLACE(checkpoint.resume), kCount),

      option("fault.setup_deadline", "seconds until the first step is done", PLACE(fault.setup_deadline), above(0)),
      option("fault.step_deadline", "seconds a rank may wait in a step for anything but files, 0 = automatic",
             PLACE(fault.step_deadline), at_least(0)),
      option("fault.read_deadline", "seconds one read of a shard may take, or the write of a step's row",
             PLACE(fault.read_deadline), above(0)),
      option("fault.evaluation_deadline", "seconds between two microbatches of an evaluation",
             PLACE(fault.evaluation_deadline), above(0)),
      option("fault.checkpoint_deadline", "seconds a save may take, and then the removal of older steps",
             PLACE(fault.checkpoint_deadline), above(0)),
      option("fault.non_finite_in_row", "skipped steps in a row that end the run: with 72, or with 76 if they had no counted target",
             PLACE(fault.non_finite_in_row), kSize),

      required(option("output.directory", "the run's directory", PLACE(output.directory))),
      option("output.log_every", "steps between progress lines", PLACE(output.log_every), kSize),

      option("device.kind", "where tensors live", PLACE(device.kind)),
      option("device.reserve", "MiB that the plan of a GPU leaves to its context and libraries; NCCL is planned apart",
             PLACE(device.reserve), between(0, kLargestCount)),
      option("device.threads",
             "threads per rank, 0 = processors it is bound to, or its control group's quota / ranks that share them",
             PLACE(device.threads), between(0, 4096)),
  };
}

#undef PLACE

std::vector<BuiltValues> built_in_this_version() {
  return {
      {"train.deterministic", {"off", "repeat"}},
      {"parallel.cp", {"1"}},
      {"checkpoint.asynchronous", {"false"}},
      {"device.kind", kHasCuda ? std::vector<std::string>{"cpu", "cuda"} : std::vector<std::string>{"cpu"}},
  };
}

std::string BuiltValues::listed() const {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

std::string full_help(const Option& option) {
  for (const BuiltValues& built : built_in_this_version()) {
    // Which devices there are depends on the build.
    if (option.key == built.key && option.key != "device.kind")
      return option.help + " (in this version " + built.listed() + ")";
  }
  return option.help;
}

}  // namespace shiftron
