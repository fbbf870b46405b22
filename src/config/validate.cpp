// Checks of a whole configuration: required keys, ranges, values of this version, and keys against each other.
#include "config/validate.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "config/config_text.h"
#include "config/faults.h"
#include "config/learning_rate.h"
#include "config/options.h"
#include "config/run_config.h"
#include "config/task_names.h"
#include "core/check.h"
#include "core/has_cuda.h"
#include "core/stream.h"
#include "kernels/attention_head_dim.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Keys = std::vector<const char*>;

// What decides how many parameters there are.
Keys model_sizes() {
  return {"model.layers",   "model.hidden", "model.heads", "model.kv_heads",
          "model.head_dim", "model.ffn",    "model.vocab"};
}

// Bounds of what is counted in 63 bits, with room for the bytes and operations of any kernel.
constexpr double kMostParameters = 1e16;
constexpr double kMostOperations = 1e18;                            // of a rank in a step
constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();  // of a microbatch: they are numbered with 32 bits
constexpr int64_t kMostMicrobatches = 1 << 20;                      // a schedule lists them all

// Collects faults; a check between keys runs only if each of them is valid on its own.
class Checker {
 public:
  Checker(const RunConfig& given, int ranks, Use use) : config_(given), ranks_(ranks), use_(use) {
    resolve(config_);
    faults_ = config_.reading_faults;
  }

  std::vector<std::string> run() {
    if (config_.is_partial) return faults_;  // the unread file may have set any key, so none can be reported as missing
    check_each_key();
    check_versions();
    check_model();
    check_size();
    check_layout();
    if (use_ != Use::evaluate) check_batch();
    if (use_ == Use::train || use_ == Use::dry_run) {
      check_run();
      check_work();
    }
    return faults_;
  }

 private:
  void fault(Keys keys, const std::string& text) {
    std::string where;
    for (const char* key : keys) {
      const auto origin = config_.origins.find(key);
      if (origin == config_.origins.end()) continue;
      const std::string prefix = keys.size() > 1 ? std::string(key) + ": " : "";
      where += (where.empty() ? "" : ", ") + prefix + to_string(origin->second);
    }
    faults_.push_back(text + (where.empty() ? "" : " (" + where + ")"));
  }
  template <typename... Parts>
  void fault_if(bool wrong, Keys keys, const Parts&... parts) {
    if (wrong) fault(keys, detail::concatenate(parts...));
  }
  bool sound(Keys keys) const {
    for (const char* key : keys) {
      if (faulty_keys_.count(key)) return false;
    }
    return true;
  }
  static std::string name(const std::string& key) { return key.substr(key.find('.') + 1); }
  void divisible(const char* key, int64_t value, const char* by_key, int64_t by) {
    if (sound({key, by_key}))
      fault_if(value % by != 0, {key, by_key}, name(key), " ", value, " not divisible by ", name(by_key), " ", by);
  }

  bool is_needed(const std::string& key) const {
    const bool trains = use_ == Use::train || use_ == Use::dry_run;
    if (key == "data.train") return use_ == Use::train || use_ == Use::dump;
    const EvaluationSection& evaluation = config_.evaluation;
    if (key == "data.validation") return use_ == Use::train && evaluation.every > 0 && evaluation.tasks.empty();
    if (key == "evaluation.data") {
      return use_ == Use::train && std::ranges::any_of(split_task_names(evaluation.tasks), reads_dataset);
    }
    if (key == "output.directory") return use_ == Use::train;
    if (key == "train.global_batch") return use_ != Use::evaluate;
    if (key == "train.steps" || key == "optimizer.learning_rate") return trains;
    return use_ != Use::dump || key == "train.sequence_length";
  }
  void check_each_key();
  void check_versions();
  void check_model();
  void check_size();
  void check_layout();
  void check_batch();
  void check_run();
  void check_work();
  void check_weights(const char* key, const std::vector<DataSource>& sources) {
    int64_t weighted = 0;
    for (const DataSource& source : sources) weighted += source.weight > 0;
    const auto all = static_cast<int64_t>(sources.size());
    fault_if(sound({key}) && weighted != 0 && weighted != all, {key}, key, ": ", weighted, " of ", all,
             " sources have a weight; give a weight to all or to none");
  }

  RunConfig config_;
  int ranks_;
  Use use_;
  std::set<std::string> faulty_keys_;  // keys that are missing, unreadable or out of range
  std::vector<std::string> faults_;
};

void Checker::check_each_key() {
  const std::set<std::string> conditional = {"data.validation", "evaluation.data"};
  for (const Option& option : option_table()) {
    const char* key = option.key.c_str();
    const auto origin = config_.origins.find(option.key);
    const bool is_given = origin != config_.origins.end();
    if (is_given && origin->second.unreadable) {
      faulty_keys_.insert(key);
      continue;
    }
    const std::vector<std::string> texts = option.write(config_);
    const std::string wrong = option.check(config_);
    if (texts.empty() && (!is_given || wrong.empty())) {
      const bool may_be_required = option.required || conditional.count(key) > 0;
      fault_if(may_be_required && is_needed(key), {key}, key, " is required: ", option.help);
      faulty_keys_.insert(key);
    } else if (!wrong.empty()) {
      std::string value;
      for (const std::string& text : texts) value += (value.empty() ? "" : " ") + text;
      fault({key}, option.key + " " + (texts.empty() ? "0" : printable(value)) + " " + wrong);
      faulty_keys_.insert(key);
    }
  }
}

void Checker::check_versions() {
  for (const Option& option : option_table()) {
    for (const ImplementedValues& built : implemented_values()) {
      if (option.key != built.key || !sound({built.key})) continue;
      // A GPU run can be planned, and its data dumped, on any machine.
      if (option.key == "device.kind" && (use_ == Use::dry_run || use_ == Use::dump)) continue;
      const std::string value = option.write(config_).front();
      const bool is_built = std::ranges::find(built.values, value) != built.values.end();
      fault_if(!is_built, {built.key}, built.key, " ", value, " is not implemented; this version has ", built.listed());
    }
  }
  const bool computes = use_ == Use::train || use_ == Use::evaluate;
  if (!(kHasCuda && computes) && use_ != Use::dry_run) return;
  if (config_.device.kind != DeviceChoice::cuda) return;
  fault_if(config_.train.precision == Precision::fp64, {"device.kind", "train.precision"},
           "precision fp64 is not available on device cuda, which has bf16 and fp32");
  fault_if(sound({"model.head_dim"}) && config_.model.head_dim > kMostHeadDimOnCuda, {"device.kind", "model.head_dim"},
           "head_dim ", config_.model.head_dim, " is not available on device cuda, whose attention has heads of up to ",
           kMostHeadDimOnCuda);
}

void Checker::check_model() {
  const ModelConfig& m = config_.model;
  divisible("model.heads", m.heads, "model.kv_heads", m.kv_heads);
  if (!config_.origins.count("model.head_dim") && m.head_dim == 0 && sound({"model.hidden", "model.heads"})) {
    fault({"model.hidden", "model.heads"},
          detail::concatenate("hidden ", m.hidden, " not divisible by heads ", m.heads, ": set model.head_dim"));
  }
  if (sound({"model.head_dim"})) {
    fault_if(m.head_dim % 2 != 0, {"model.head_dim"}, "head_dim ", m.head_dim,
             " not divisible by 2, as rotary positions need");
  }
  const ShiftConfig& shift = m.shift;
  if (!sound({"shift.query", "shift.key", "shift.value", "shift.form", "shift.init"})) return;
  const std::pair<const char*, int> streams[] = {
      {"shift.query", shift.query}, {"shift.key", shift.key}, {"shift.value", shift.value}};
  for (const auto& [key, previous] : streams) {
    fault_if(shift.form != ShiftForm::free && previous > 1, {"shift.form", key}, "form ", to_string(shift.form),
             " allows one previous token, but ", key, " is ", previous);
  }
  fault_if(shift.form == ShiftForm::gate && shift.init == ShiftInit::identity, {"shift.form", "shift.init"},
           "form gate cannot start as the identity: its logit would be infinite");
}

void Checker::check_size() {
  if (!sound(model_sizes())) return;
  const double parameters = parameter_count(config_.model);
  fault_if(parameters > kMostParameters, model_sizes(), "the model has ", parameters, " parameters; the maximum is ",
           kMostParameters, "; lower model.*");
}

void Checker::check_layout() {
  const ModelConfig& m = config_.model;
  const ParallelSection& p = config_.parallel;
  divisible("model.heads", m.heads, "parallel.tp", p.tp);
  divisible("model.ffn", m.ffn, "parallel.tp", p.tp);
  if (sound({"model.kv_heads", "parallel.tp"})) {
    fault_if(m.kv_heads % p.tp != 0 && p.tp % m.kv_heads != 0, {"model.kv_heads", "parallel.tp"}, "kv_heads ",
             m.kv_heads, " and tp ", p.tp, ": one must divide the other");
  }
  if (sound({"model.vocab", "parallel.tp"})) {
    fault_if(m.vocab < p.tp, {"model.vocab", "parallel.tp"}, "vocab ", m.vocab, " below tp ", p.tp);
  }
  if (sound({"model.layers", "parallel.pp"})) {
    fault_if(m.layers < p.pp, {"model.layers", "parallel.pp"}, "layers ", m.layers, " below pp ", p.pp);
  }
  int chunks = 1;
  if (sound({"parallel.pipeline", "parallel.chunks"})) {
    const bool interleaved = p.pipeline == PipelineKind::interleaved, zb_v = p.pipeline == PipelineKind::zb_v;
    const Keys keys = {"parallel.pipeline", "parallel.chunks"};
    fault_if(interleaved && p.chunks == 1, keys, "pipeline interleaved needs parallel.chunks of 2 or more, not 1");
    fault_if(zb_v && p.chunks > 2, keys, "pipeline zb-v has 2 chunks, not ", p.chunks);
    fault_if(!interleaved && !zb_v && p.chunks > 1, keys, "pipeline ", to_string(p.pipeline), " has 1 chunk, not ",
             p.chunks, ": set parallel.pipeline=interleaved");
    chunks = zb_v ? 2 : interleaved ? p.chunks : 1;
  }
  if (sound({"model.layers", "parallel.pp"}) && m.layers >= p.pp) {
    fault_if(m.layers / p.pp < chunks, {"model.layers", "parallel.pp", "parallel.chunks"}, "layers ", m.layers,
             " below pp ", p.pp, " * chunks ", chunks);
  }
  if (sound({"parallel.stage_layers", "parallel.pp", "parallel.chunks", "parallel.pipeline", "model.layers"}) &&
      !p.stage_layers.empty()) {
    int64_t sum = 0;
    for (const int64_t count : p.stage_layers) sum += count;
    fault_if(chunks == 1 && static_cast<int64_t>(p.stage_layers.size()) != p.pp,
             {"parallel.stage_layers", "parallel.pp"}, "stage_layers has ", p.stage_layers.size(),
             " entries, but pp is ", p.pp);
    fault_if(chunks > 1 && static_cast<int64_t>(p.stage_layers.size()) != int64_t{p.pp} * chunks,
             {"parallel.stage_layers", "parallel.pp", "parallel.chunks"}, "stage_layers has ", p.stage_layers.size(),
             " entries, but pp ", p.pp, " * chunks ", chunks, " is ", int64_t{p.pp} * chunks);
    fault_if(sum != m.layers, {"parallel.stage_layers", "model.layers"}, "stage_layers sum to ", sum,
             ", but layers is ", m.layers);
  }
  if (sound({"parallel.recompute", "parallel.pp"})) {
    const size_t entries = p.recompute.kinds.size();
    fault_if(entries != 1 && entries != static_cast<size_t>(p.pp), {"parallel.recompute", "parallel.pp"},
             "recompute has ", entries, " entries, but pp is ", p.pp, "; give one, or one per stage");
  }
  fault_if(ranks_ > kMostRanks, {"parallel.tp", "parallel.cp", "parallel.pp"}, "ranks ", ranks_, "; the maximum is ",
           kMostRanks);
  if (sound({"parallel.tp", "parallel.cp", "parallel.pp"})) {
    const int64_t smallest = int64_t{p.tp} * p.cp * p.pp;
    fault_if(ranks_ < 1 || ranks_ % smallest != 0, {"parallel.tp", "parallel.cp", "parallel.pp"}, "ranks ", ranks_,
             " not divisible by tp ", p.tp, " * cp ", p.cp, " * pp ", p.pp, " = ", smallest);
  }
}

void Checker::check_batch() {
  const TrainSection& t = config_.train;
  const ParallelSection& p = config_.parallel;
  if (sound({"train.micro_batch", "train.sequence_length", "parallel.tp"})) {
    const int64_t rows = t.micro_batch * t.sequence_length;
    fault_if(rows > kMostRows, {"train.micro_batch", "train.sequence_length"}, "rows micro_batch ", t.micro_batch,
             " * sequence_length ", t.sequence_length, " = ", rows, "; the maximum is ", kMostRows);
    fault_if(rows % p.tp != 0, {"train.micro_batch", "train.sequence_length", "parallel.tp"}, "rows micro_batch ",
             t.micro_batch, " * sequence_length ", t.sequence_length, " = ", rows, " not divisible by tp ", p.tp);
  }
  const Keys keys = {"train.global_batch", "train.micro_batch", "parallel.tp", "parallel.cp", "parallel.pp"};
  if (!sound(keys)) return;
  const int64_t smallest = int64_t{p.tp} * p.cp * p.pp;
  if (ranks_ < 1 || ranks_ % smallest != 0) return;
  const int64_t dp = ranks_ / smallest;
  fault_if(t.global_batch % (t.micro_batch * dp) != 0, {"train.global_batch", "train.micro_batch"}, "global_batch ",
           t.global_batch, " not divisible by micro_batch ", t.micro_batch, " * dp ", dp, " = ", t.micro_batch * dp);
}

// Work of a rank in a step: microbatches, and the operations of the stage with most layers, head included.
void Checker::check_work() {
  const TrainSection& t = config_.train;
  const ParallelSection& p = config_.parallel;
  const Keys keys = {"train.global_batch", "train.micro_batch", "train.sequence_length",
                     "parallel.tp",        "parallel.cp",       "parallel.pp"};
  if (!sound(keys) || !sound(model_sizes())) return;
  const int64_t dp = std::max<int64_t>(ranks_ / (int64_t{p.tp} * p.cp * p.pp), 1);
  const int64_t microbatches = t.global_batch / (t.micro_batch * dp);
  fault_if(microbatches > kMostMicrobatches, {"train.global_batch", "train.micro_batch"}, "global_batch ",
           t.global_batch, " / (micro_batch ", t.micro_batch, " * dp ", dp, ") = ", microbatches,
           " microbatches per rank and step; the maximum is ", kMostMicrobatches);
  ModelConfig stage = config_.model;
  stage.layers = (stage.layers + p.pp - 1) / p.pp;
  if (std::vector<int64_t> pieces = p.stage_layers; !pieces.empty()) {  // as if the longest were all on one stage
    std::ranges::sort(pieces, std::greater{});
    pieces.resize(static_cast<size_t>(std::min<int64_t>(p.chunks, std::ssize(pieces))));
    stage.layers = std::reduce(pieces.begin(), pieces.end());
  }
  const double tokens = static_cast<double>(t.global_batch) * static_cast<double>(t.sequence_length);
  const double attended = tokens * (static_cast<double>(t.sequence_length) + 1) / 2;
  const double operations = model_flops(stage, tokens, attended) / (static_cast<double>(dp) * p.tp);
  fault_if(operations > kMostOperations, {"train.global_batch", "train.sequence_length"}, operations,
           " operations per rank and step; the maximum is ", kMostOperations,
           "; lower train.global_batch, train.sequence_length or model.*, or use more ranks");
}

void Checker::check_run() {
  const TrainSection& t = config_.train;
  const OptimizerSection& o = config_.optimizer;
  const CheckpointSection& c = config_.checkpoint;
  check_weights("data.train", config_.data.train);
  check_weights("data.validation", config_.data.validation);
  if (sound({"train.steps", "optimizer.warmup", "optimizer.decay_steps"})) {
    const bool is_wsd = o.schedule == LearningRateSchedule::wsd;
    const bool falls = o.schedule != LearningRateSchedule::constant;  // a constant one may end during its warm-up
    const int64_t decay = is_wsd ? effective_decay_steps(o, t.steps) : o.decay_steps;
    fault_if(falls && o.warmup + decay > t.steps, {"optimizer.warmup", "optimizer.decay_steps", "train.steps"},
             "warmup ", o.warmup, " + decay_steps ", decay, " exceed steps ", t.steps);
  }
  if (sound({"train.steps", "train.stop_at"})) {
    fault_if(t.stop_at > t.steps, {"train.stop_at", "train.steps"}, "stop_at ", t.stop_at, " exceeds steps ", t.steps);
  }
  if (sound({"train.steps", "checkpoint.resume"})) {
    fault_if(c.resume.step > t.steps, {"checkpoint.resume", "train.steps"}, "resume ", c.resume.step, " exceeds steps ",
             t.steps);
  }
  if (sound({"evaluation.tasks", "evaluation.every"})) {
    fault_if(config_.evaluation.every == 0, {"evaluation.tasks", "evaluation.every"},
             "tasks need evaluation.every, the number of steps between evaluations");
  }
  if (c.every > 0) divisible("checkpoint.keep_every", c.keep_every, "checkpoint.every", c.every);
}

}  // namespace

std::vector<std::string> find_faults(const RunConfig& config, int ranks, Use use) {
  return Checker(config, ranks, use).run();
}

void validate(const RunConfig& config, int ranks, Use use) {
  refuse_faults(find_faults(config, ranks, use), "the configuration");
}

}  // namespace shiftron
