// What a run asks of its weights beside held-out loss, at the pace of evaluation.every. Made outside of train/, which
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
#include "train/engine.h"

namespace shiftron {

struct StepValue {
  std::string task{}, metric{};
  double value = 0;
  std::optional<double> error{};  // standard error
};

// How a pass and the run around it get on.
struct EvaluationPace {
  std::function<void()> each_batch;  // of this rank, before it is read: there is progress
  std::function<bool()> go_on;       // every rank asks it as often, and gets the same: false where the run is to stop
};

// All of it is called by every rank alike. It goes before the engine that it is attached to.
class StepEvaluation {
 public:
  virtual ~StepEvaluation() = default;
  // Adds to `planned` what attach() takes on such a rank.
  virtual void plan(const ParallelLayout& layout, int rank, int threads, Ledger& planned) const = 0;
  // Takes all memory of a device that passes will need. Weights are read, and nothing of the engine's training changes.
  virtual void attach(Engine& engine) = 0;
  // The weights as they are behind `step`; values on rank 0 alone. Unset on every rank where the run is to stop.
  virtual std::optional<std::vector<StepValue>> evaluate(int64_t step, const EvaluationPace& pace) = 0;
};

// Reads what is asked; throws Error(bad_input) where a file is missing or at fault. `tokenizer_model`: the run's.
using MakeStepEvaluation = std::function<std::unique_ptr<StepEvaluation>(const std::string& tokenizer_model)>;

}  // namespace shiftron
