// Old steps of a run, removed by hand as training removes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/steps.h"
#include "checkpoint/tensor_source.h"

namespace shiftron {

struct SuperfluousStep {
  StepDirectory step;
  uint64_t bytes = 0;  // of its files
};

// What an interrupted save or removal left; where a run is alive, also what is under way.
struct Leftover {
  std::string path;
  uint64_t bytes = 0;  // of its files
};

struct Pruning {
  std::vector<SuperfluousStep> steps;  // newest first
  std::vector<Leftover> leftovers;     // they go too
  int64_t keep = 0, keep_every = 0;    // the rule that names them
  int64_t newest_whole = -1;           // the newest step that was read without a fault; −1 = nothing is superfluous
};

// What may go of RUN: what checkpoint.keep and keep_every of the newest valid step would remove, or these two. Without
// `keep_every` the steps that an earlier start promised to keep stay. The newest step whose every byte is read without
// a fault stays whatever the rule; where there is none, Error(no_checkpoint). Errors: no run, no valid step
// (bad_input).
Pruning plan_pruning(const std::string& run, std::optional<int64_t> keep, std::optional<int64_t> keep_every,
                     const BytesRead& progress = {});

// The same, then removes all of it, leftovers first, under the run's lock: Error(bad_input) where a run is alive there.
// On a full disk, where the lock has no room, one leftover, or else the oldest step that goes, goes before.
Pruning prune(const std::string& run, std::optional<int64_t> keep, std::optional<int64_t> keep_every,
              const BytesRead& progress = {});

}  // namespace shiftron
