// Removes old steps of a run by hand, with the rule that training uses.
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

// What an interrupted save or removal left; if a run is alive, also what it is working on.
struct Leftover {
  std::string path;
  uint64_t bytes = 0;  // of its files
};

struct Pruning {
  std::vector<SuperfluousStep> steps;  // newest first
  std::vector<Leftover> leftovers;     // removed too
  int64_t keep = 0, keep_every = 0;    // the rule by which they are superfluous
  int64_t newest_undamaged = -1;       // the newest step that was read without a fault; −1 = nothing is superfluous
};

// What may be removed from RUN: what checkpoint.keep and keep_every of the newest valid step, or these arguments, would
// remove. Without `keep_every`, steps that an earlier start promised to keep stay. The newest step whose every byte can
// be read without a fault always stays; if there is none, Error(no_checkpoint). Errors: no run, no valid step
// (bad_input).
Pruning plan_pruning(const std::string& run, std::optional<int64_t> keep, std::optional<int64_t> keep_every,
                     const BytesRead& progress = {});

// The same, then removes all of it, leftovers first, under the run's lock: Error(bad_input) if a run is alive there. If
// the disk is too full for the lock, one leftover, or otherwise the oldest superfluous step, is removed first.
Pruning prune(const std::string& run, std::optional<int64_t> keep, std::optional<int64_t> keep_every,
              const BytesRead& progress = {});

}  // namespace shiftron
