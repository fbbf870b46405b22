// The table of all configuration keys.
#include "config/options.h"

#include <type_traits>
#include <utility>

#include "config/option_value.h"
#include "core/check.h"
#include "core/has_cuda.h"
#include "tokenizer/utf8.h"

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
  if (text.find_first_of("#\n\r") != std::string::npos) return "must not contain '#' or a line break";
  constexpr const char* kBlank = " \t";
  if (text.find_first_not_of(kBlank) != 0 || text.find_last_not_of(kBlank) + 1 != text.size()) {
    return "must not begin or end with blanks";
  }
  const bool is_quoted =
      text.size() > 1 && text.front() == text.back() && (text.front() == '"' || text.front() == '\'');
  if (is_quoted) return "must be written without quotes";
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
          option("model.head_dim", "width of each head (default: hidden / heads)", PLACE(model.head_dim), kSize)),
      required(option("model.ffn", "width of the feed-forward layer", PLACE(model.ffn), kSize)),
      required(option("model.vocab", "tokens in the vocabulary", PLACE(model.vocab), kSize)),
      option("model.rope_base", "base of the rotary position angles", PLACE(model.rope_base), above(0)),
      option("model.norm_epsilon", "epsilon of RMSNorm, added to the mean square", PLACE(model.norm_epsilon), kFloat),
      option("model.tie_embeddings", "share the embedding's weights with the output head", PLACE(model.tie_embeddings)),
      option("model.init_std", "standard deviation of the initial weight matrices", PLACE(model.init_std), kFloat),

      option("shift.query", "number of previous tokens mixed into queries, 0 to 3", PLACE(model.shift.query),
             between(0, 3)),
      option("shift.key", "number of previous tokens mixed into keys, 0 to 3", PLACE(model.shift.key), between(0, 3)),
      option("shift.value", "number of previous tokens mixed into values, 0 to 3", PLACE(model.shift.value),
             between(0, 3)),
      option("shift.form",
             "how taps follow from parameters: free, gate = by a sigmoid, clamp = clamped to [0, 1] in forward, "
             "project = projected to [0, 1] after each update",
             PLACE(model.shift.form)),
      option("shift.init", "initial taps: paper = random with sum 1, identity = only the current token",
             PLACE(model.shift.init)),
      option("shift.remainder", "which token's tap makes the initial sum 1, the oldest or the current one",
             PLACE(model.shift.remainder)),
      option("shift.reset", "where the shift restarts: auto = where attention does, always = at each document, never",
             PLACE(model.shift.reset)),

      required(option("train.steps", "number of training steps", PLACE(train.steps), kSize)),
      required(option("train.global_batch", "sequences per step, over all ranks", PLACE(train.global_batch), kSize)),
      option("train.micro_batch", "sequences per forward pass on a rank", PLACE(train.micro_batch), kSize),
      required(option("train.sequence_length", "tokens per sequence", PLACE(train.sequence_length), kSize)),
      option("train.stop_at", "save and exit with code 75 after this step; the same command continues; 0 = never",
             PLACE(train.stop_at), kCount),
      option("train.precision", "number format of activations and matrix products", PLACE(train.precision)),
      option("train.seed", "random seed of the initial weights and the data order", PLACE(train.seed), at_least(0)),
      option("train.deterministic",
             "bitwise reproducible: repeat = when the same command runs again, layouts = in every layout too",
             PLACE(train.deterministic)),

      required(option("optimizer.learning_rate", "peak learning rate", PLACE(optimizer.learning_rate), kFloat)),
      option("optimizer.betas", "AdamW beta1 and beta2: decay rates of the moments", PLACE(optimizer.betas), kBelowOne),
      option("optimizer.epsilon", "AdamW epsilon, added to the root of the second moment", PLACE(optimizer.epsilon),
             kFloat),
      option("optimizer.weight_decay", "weight decay of matrices, embedding and output head",
             PLACE(optimizer.weight_decay), kFloatOrZero),
      option("optimizer.shift_weight_decay", "weight decay of the shift parameters",
             PLACE(optimizer.shift_weight_decay), kFloatOrZero),
      option("optimizer.shift_learning_rate_scale", "learning-rate multiplier for the shift parameters",
             PLACE(optimizer.shift_learning_rate_scale), kFloatOrZero),
      option("optimizer.clip", "maximum gradient norm; larger gradients are scaled down; 0 = off",
             PLACE(optimizer.clip), kFloatOrZero),
      option("optimizer.schedule", "learning-rate schedule after warm-up", PLACE(optimizer.schedule)),
      option("optimizer.warmup", "length of the linear warm-up, in steps", PLACE(optimizer.warmup), kCount),
      option("optimizer.decay_steps",
             "length of the decay, in steps; 0 = until the last step, with wsd the last fifth of the run",
             PLACE(optimizer.decay_steps), kCount),
      option("optimizer.final_fraction", "final learning rate as a fraction of the peak",
             PLACE(optimizer.final_fraction), kFraction),

      option("parallel.tp", "tensor-parallel size: ranks that split each layer", PLACE(parallel.tp), between(1, 65536)),
      option("parallel.cp", "context-parallel size: ranks that split each sequence", PLACE(parallel.cp),
             between(1, 65536)),
      option("parallel.pp", "pipeline-parallel size: number of stages", PLACE(parallel.pp), between(1, 65536)),
      option("parallel.rank_order", "order of the axes; ranks of the first axis get consecutive numbers",
             PLACE(parallel.rank_order)),
      option("parallel.chunks", "model chunks per stage, for the interleaved schedule", PLACE(parallel.chunks),
             between(1, 65536)),
      option("parallel.zero", "1 = shard the optimizer state over data-parallel ranks", PLACE(parallel.zero),
             between(0, 1)),
      option("parallel.bucket_elements",
             "parameters per data-parallel exchange; 0 = 40 Mi, or 1 Mi per rank with more than 40 data-parallel ranks",
             PLACE(parallel.bucket_elements), kCount),
      option("parallel.pipeline", "pipeline schedule", PLACE(parallel.pipeline)),
      option("parallel.recompute",
             "what backward recomputes, one value or one per stage: selective = MLP gate and up, full = whole layers",
             PLACE(parallel.recompute)),
      option("parallel.stage_layers",
             "layers of each part of the model, in order: pp values, with interleaved pp * chunks, with zb-v 2 * pp "
             "(default: equal work)",
             PLACE(parallel.stage_layers), kSize),

      required(option("data.train", "dataset directory and its weight in the blend; repeatable", PLACE(data.train))),
      option("data.validation", "dataset directory for evaluation; repeatable, each is also reported separately",
             PLACE(data.validation)),
      option("data.document_reset", "attend only within a document, and restart positions at each",
             PLACE(data.document_reset)),

      option("evaluation.every", "steps between evaluations; 0 = never", PLACE(evaluation.every), kCount),
      unset_at_zero(option("evaluation.sequences",
                           "sequences per evaluation, from the start of each data.validation dataset (default: all)",
                           PLACE(evaluation.sequences), kSize)),
      option("evaluation.tasks",
             "benchmarks, task files of your own and perplexity:FILE, separated by commas; evaluate --tasks list shows "
             "all",
             PLACE(evaluation.tasks)),
      option("evaluation.data", "folder with the benchmarks' data files", PLACE(evaluation.data)),
      option("evaluation.fewshot", "few-shot examples before each item (default: the task's)",
             PLACE(evaluation.fewshot), kCount),
      unset_at_zero(option("evaluation.limit", "maximum items per task, or a fraction below 1 (default: all)",
                           PLACE(evaluation.limit), at_least(0))),
      option("evaluation.bos",
             "put the begin-of-document token before each text: 1, 0, or tokenizer = as the exported tokenizer does",
             PLACE(evaluation.bos)),
      unset_at_zero(option("evaluation.max_gen_toks", "maximum tokens of a generated answer (default: the task's)",
                           PLACE(evaluation.max_gen_toks), kSize)),
      option("evaluation.boundary_fallback",
             "encode a continuation alone if it merges into its context, instead of failing",
             PLACE(evaluation.boundary_fallback)),

      option("checkpoint.every", "steps between saves; 0 = only at the end and when stopped", PLACE(checkpoint.every),
             kCount),
      option("checkpoint.keep", "number of newest checkpoints to keep; fewer if the disk is too full for another",
             PLACE(checkpoint.keep), kSize),
      option("checkpoint.keep_every", "keep checkpoints at multiples of this step forever; 0 = none",
             PLACE(checkpoint.keep_every), kCount),
      option("checkpoint.asynchronous", "write checkpoints in the background while training continues",
             PLACE(checkpoint.asynchronous)),
      option("checkpoint.resume",
             "what to resume from: auto = the newest valid checkpoint, never = nothing, STEP = this step",
             PLACE(checkpoint.resume), kCount),

      option("fault.setup_deadline", "maximum seconds until the first step is done", PLACE(fault.setup_deadline),
             above(0)),
      option("fault.step_deadline", "maximum seconds a rank may wait in a step, except for files; 0 = automatic",
             PLACE(fault.step_deadline), at_least(0)),
      option("fault.read_deadline", "maximum seconds for one read of a shard, or for writing a step's metrics",
             PLACE(fault.read_deadline), above(0)),
      option("fault.evaluation_deadline", "maximum seconds between two microbatches of an evaluation",
             PLACE(fault.evaluation_deadline), above(0)),
      option("fault.checkpoint_deadline", "maximum seconds for a save, and again for removing older checkpoints",
             PLACE(fault.checkpoint_deadline), above(0)),
      option("fault.non_finite_in_row",
             "consecutive skipped steps after which the run ends: with 72, or with 76 if they had no counted target",
             PLACE(fault.non_finite_in_row), kSize),

      required(option("output.directory", "the run's directory", PLACE(output.directory))),
      option("output.log_every", "steps between progress lines", PLACE(output.log_every), kSize),

      option("device.kind", "device that holds the tensors and computes", PLACE(device.kind)),
      option("device.reserve",
             "MiB of GPU memory reserved for CUDA's context and libraries; NCCL is counted separately",
             PLACE(device.reserve), between(0, kLargestCount)),
      option("device.threads",
             "threads per rank; 0 = the processors it is bound to, or its control group's quota, divided by the ranks "
             "that share them",
             PLACE(device.threads), between(0, 4096)),
  };
}

#undef PLACE

std::vector<ImplementedValues> implemented_values() {
  return {
      {"train.deterministic", {"off", "repeat"}},
      {"parallel.cp", {"1"}},
      {"checkpoint.asynchronous", {"false"}},
      {"device.kind", kHasCuda ? std::vector<std::string>{"cpu", "cuda"} : std::vector<std::string>{"cpu"}},
  };
}

std::string ImplementedValues::listed() const {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

std::string full_help(const Option& option) {
  for (const ImplementedValues& built : implemented_values()) {
    // Which devices there are depends on the build.
    if (option.key == built.key && option.key != "device.kind")
      return option.help + " (in this version " + built.listed() + ")";
  }
  return option.help;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : " ") + text;
  return all;
}

}  // namespace shiftron
