// The configuration of a run: one struct per section, and what follows from them. Options are defined in options.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/sections.h"
#include "model/config.h"
#include "parallel/layout.h"
#include "parallel/pipeline.h"

namespace shiftron {

// Where a key's value was given.
struct Origin {
  std::string file;         // "a.conf", "command line", "checkpoint"
  int line = 0;             // from 1; 0 = has none
  bool unreadable = false;  // the text could not be read; the value is the default
};

// "a.conf:3", "command line".
std::string to_string(const Origin& origin);
// " (a.conf:3)"; "" for an origin without a file.
std::string bracketed(const Origin& origin);

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

inline constexpr int kMostRanks = 1'000'000;  // of a job

// The schedule, i.e. the order of a step's work, that the configuration sets.
Schedule schedule_of(const RunConfig& config);

// Layout of `ranks` ranks; dp = ranks / (tp · cp · pp). The configuration must be valid.
ParallelLayout make_layout(const ParallelSection& parallel, int ranks);
// Microbatches of every rank in a step.
int microbatches_of_step(const RunConfig& config, const ParallelLayout& layout);
// tp * cp * pp: the fewest ranks that the configuration runs on.
int minimum_ranks(const ParallelSection& parallel);

// Whether the key is of [model] or [shift], which define what a model computes.
bool is_model_key(const std::string& key);

}  // namespace shiftron
