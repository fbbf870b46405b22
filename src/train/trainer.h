// Trainer: one training step over all ranks, its results, evaluation, and the state that checkpoints keep.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "run/saved_state.h"
#include "run/step_result.h"
#include "train/engine.h"

namespace shiftron {

// From the totals of add_losses.
MeanLoss mean_loss(const double* totals);

class Trainer {
 public:
  // `plan` is empty on meta. `groups`: of this rank.
  Trainer(const RunConfig& config, Groups groups, Stream& stream, const MemoryPlan& plan,
          std::optional<Schedule> schedule = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Forward and backward of one microbatch that change nothing and exchange no messages between stages, so that
  // libraries choose their algorithms. Every rank calls it, before the first step.
  void warm_up(const BatchReader& read);
  // Hands forward, backward, sums over ranks and update to the device. `read` fills this rank's microbatches. What a
  // step is given and what it returns have two slots: the result of step − 2 is lost.
  void step(int64_t step, const BatchReader& read, bool stop_requested);
  // The result of the last step started, or of the one before it; waits until it is available. The same on every rank.
  StepResult result(int64_t step);
  // Evaluates `microbatches` microbatches of every dp rank; the same result on every rank. Waits. `sources`: of each
  // microbatch's rows, by their place in data.validation; without it, no source is reported separately.
  // All ranks call `keep_going` equally often, every few microbatches, and get the same answer: unset if it returned
  // false.
  std::optional<EvaluationResult> evaluate(int microbatches, const BatchReader& read,
                                           const std::function<bool()>& keep_going = {},
                                           const std::function<std::vector<SourceTotals::Rows>(int)>& sources = {});

  int microbatches() const { return microbatches_; }  // of a step, on this rank
  std::vector<std::string> group_names() const;       // "embedding", "layers.0", …, "final_norm", "head"
  Engine& engine() { return engine_; }
  MemoryPlan arena_peaks() const { return engine_.arena_peaks(); }
  // For checkpoints; throws if the result of the last step was not read.
  TrainerState state() const;
  void restore(const TrainerState& state);

 private:
  // What the host gives to a step and takes from it, in pinned memory.
  struct Slot {
    int64_t step = 0;
    Tensor given, taken;
    Event begin, end;
    TimeSplit times;
    std::vector<AwaitedOperation> awaited;
  };
  void collect_sums(ConstTensor given);  // sums of this step on this rank, then over all ranks
  void update(ConstTensor given);
  AdamWParameter update_of(const Parameter& parameter) const;  // of the part that this rank updates
  std::vector<Squares> squares() const;                        // of the gradients whose squares this rank sums
  int64_t group_of(const ParameterSpec& spec) const;
  int64_t groups() const { return config_.model.layers + 3; }
  int64_t tap_slot(int layer, int stream) const;
  int64_t attended_slot() const;  // after squares and taps
  int64_t correct_slot() const { return attended_slot() + 1; }
  int64_t sum_count() const { return correct_slot() + 1; }
  // Number of sources of data.validation, if each is reported separately; otherwise 0.
  int64_t sources() const { return config_.data.validation.size() > 1 ? std::ssize(config_.data.validation) : 0; }
  int64_t sum_scratch() const;  // elements of float64 that collect_sums() needs
  Slot& slot_of(int64_t step) { return slots_[static_cast<size_t>(step % 2)]; }
  void add_taps(const double* sums, StepResult& result) const;
  RunConfig config_;
  Stream& stream_;
  Engine engine_;
  int microbatches_;
  Buffer device_, pinned_;
  std::array<Slot, 2> slots_;
  std::vector<AwaitedOperation> unfinished_;  // at the end of the last step whose result was read
  Event first_begin_;                         // of the first step
  Tensor pinned_totals_, pinned_counters_;    // for evaluate() and restore_state()
  Tensor evaluated_;  // float64 [1 + sources(), kLossTotals]: all, then each source; totals_ is its first row
  Tensor given_, totals_, scalars_, results_, sums_, counters_, step_result_;  // float64; results_: the three after it
  Tensor sum_scratch_;                                                         // float64, used by one call at a time
  std::array<double, kUpdateCounters> known_counters_{};                       // after known_step_
  int64_t known_step_ = 0, last_step_ = 0;
};

// What this rank needs, from a run on meta: bytes of every arena. `ledger` gets memory, kernels and traffic of one
// step.
MemoryPlan plan_memory(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, Ledger& ledger,
                       std::optional<Schedule> schedule = {});

// Adds to `ledger` the memory by which the ledger of `planning`, a stream on meta, exceeds `before`; if a GPU is
// planned for, without host memory.
void add_planned_memory(const Stream& planning, const Ledger& before, Ledger& ledger);

}  // namespace shiftron
