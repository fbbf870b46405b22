// What a run evaluates in addition to held-out loss, every evaluation.every steps. Created outside of train/, which
// knows nothing of benchmarks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ledger.h"
#include "parallel/layout.h"
#include "run/step_result.h"
#include "train/engine.h"

namespace shiftron {

// Callbacks by which an evaluation reports progress and learns of a stop.
struct EvaluationCallbacks {
  std::function<void()> each_batch;  // called before this rank reads each batch: shows progress
  std::function<bool()> keep_going;  // all ranks ask equally often and get the same: false if the run is to stop
};

// Every rank calls all of it, in the same way. It must be destroyed before the engine that it is attached to.
class StepEvaluation {
 public:
  virtual ~StepEvaluation() = default;
  // Adds to `planned` the memory that attach() takes on such a rank.
  virtual void plan(const ParallelLayout& layout, int rank, int threads, Ledger& planned) const = 0;
  // Allocates all device memory that passes will need. Weights are only read, and nothing of the engine's training
  // changes.
  virtual void attach(Engine& engine) = 0;
  // Evaluates the weights after `step`; values on rank 0 only. Unset on every rank if the run is to stop.
  virtual std::optional<std::vector<StepValue>> evaluate(int64_t step, const EvaluationCallbacks& pace) = 0;
};

// Reads the requested benchmarks; throws Error(bad_input) if a file is missing or faulty. `tokenizer`: the run's.
using MakeStepEvaluation = std::function<std::unique_ptr<StepEvaluation>(const StoredTokenizer& tokenizer)>;

}  // namespace shiftron
