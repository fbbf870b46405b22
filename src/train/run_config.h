// The configuration of a run: one struct per section, and functions on it. Options are defined in options.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"
#include "parallel/layout.h"
#include "parallel/pipeline.h"
#include "train/sections.h"

namespace shiftron {

// Where a key's value was given.
struct Origin {
  std::string file;         // "a.conf", "command line", "checkpoint"
  int line = 0;             // from 1; 0 = has none
  bool unreadable = false;  // the text could not be read; the value is the default
};

// "a.conf:3", "command line".
std::string to_string(const Origin& origin);

// One key with its text.
struct Setting {
  std::string key;  // "model.hidden"
  std::string text;
  Origin origin;
};

inline constexpr uint64_t kLargestConfiguration = uint64_t{16} << 20;  // bytes of a file

// Every key of a run. Values are compared by changed_keys(), which knows all of them.
struct RunConfig {
  ModelConfig model;
  TrainSection train;
  OptimizerSection optimizer;
  ParallelSection parallel;
  DataSection data;
  EvaluationSection evaluation;
  CheckpointSection checkpoint;
  FaultSection fault;
  OutputSection output;
  DeviceSection device;

  std::map<std::string, Origin> origins;    // keys that were given
  std::vector<std::string> reading_faults;  // found while reading; validate() lists them with its own
  bool is_partial = false;                  // a file could not be read; validate() then lists only reading_faults
};

// Applies one level (a file, the command line) over `config`; a list replaces that of weaker levels, and repeats add up
// within the level. Unknown keys and unreadable values go to config.reading_faults. `repeats_win`: a scalar key given
// twice takes the last value (command line), otherwise it is a fault (file). Call with the weakest level first.
void apply_level(RunConfig& config, const std::vector<Setting>& settings, bool repeats_win = false);

// Fills in the values that follow from others (model.kv_heads, model.head_dim). Call after the last level.
void resolve(RunConfig& config);

inline constexpr int kMostRanks = 1'000'000;  // of a job

// What a command needs of the configuration: which keys are required, which cross checks apply.
enum class Use {
  train,     // everything
  dry_run,   // as train, but no data, no output directory
  dump,      // batches: data and batch sizes
  evaluate,  // evaluate, generate: the model and a layout
};

// Every fault, one line each ("heads 20 not divisible by tp 8 (model.heads: a.conf:3)"), reading_faults first.
std::vector<std::string> find_faults(const RunConfig& config, int ranks, Use use = Use::train);
// Throws one Error(bad_input) that lists all of find_faults().
void validate(const RunConfig& config, int ranks, Use use = Use::train);

// The schedule, i.e. the order of a step's work, that the configuration sets.
Schedule schedule_of(const RunConfig& config);

// Layout of `ranks` ranks; dp = ranks / (tp · cp · pp). The configuration must be valid.
ParallelLayout make_layout(const ParallelSection& parallel, int ranks);
// tp * cp * pp: the fewest ranks that the configuration runs on.
int minimum_ranks(const ParallelSection& parallel);

// A configuration file that reads back to the same values; required keys without a value are left out.
std::string to_config_text(const RunConfig& config);
// {"model": {"layers": 12, ...}, ...} with the same keys, and back; from_json throws Error(bad_input).
std::string to_json(const RunConfig& config);
RunConfig config_from_json(const std::string& json, const std::string& source = "json");
// The text whose hash identifies a run: "key=text" lines of the keys that may not differ on resume.
std::string hash_input(const RunConfig& config);

// Whether the key is of [model] or [shift], which define what a model computes.
bool is_model_key(const std::string& key);

struct ChangedKey {
  std::string key, before, after;
  bool may_differ = false;  // on resume
};
// Keys whose values differ, in the order of the table.
std::vector<ChangedKey> changed_keys(const RunConfig& before, const RunConfig& after);
// Throws Error(bad_input) that lists the changed keys that may not differ on resume, or what could not be read of
// `saved`. `model_only`: only the keys of [model] and [shift], since `saved` holds no others. `step_directory`: if
// given, the message names the commands for a new run from that step.
void require_resumable(const RunConfig& saved, const RunConfig& now, bool model_only = false,
                       const std::string& step_directory = "");

// The commands that begin a new run with the step's parameters; `options`: of its training.
std::string new_run_from(const std::string& step_directory, const std::string& options);

}  // namespace shiftron
