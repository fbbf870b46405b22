// Trainer: one training step over all ranks, its results, evaluation, and the state that checkpoints keep.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "train/engine.h"

namespace shiftron {

// What the host learns of a step.
struct StepResult {
  double loss = 0;           // nats per counted target, before the update
  double gradient_norm = 0;  // before clipping
  double counted = 0;        // targets
  double attended = 0;       // Σ over rows of the rows, itself included, that each attends to
  bool skipped = false;
  bool stop = false;         // some rank was asked to stop
  std::vector<double> group_norms;  // per Trainer::group_names()
  // [layer][stream: query, key, value][taps, oldest first] mean over heads; empty without shift
  std::vector<std::array<std::vector<double>, 3>> taps;
};

class Trainer {
 public:
  // `plan` is empty on meta; groups of this rank.
  Trainer(const RunConfig& config, Groups groups, Stream& stream, const MemoryPlan& plan);

  // Forward, backward, sums over ranks, update. `read` fills this rank's microbatches.
  void step(int64_t step, const BatchReader& read, bool stop_requested);
  // Of the step before the last one started, or of the last one; the same on every rank.
  StepResult result(int64_t step) const;
  // Mean loss over the counted targets of `microbatches` microbatches of every dp rank; the same on every rank.
  double evaluate(int microbatches, const BatchReader& read);

  int microbatches() const { return microbatches_; }  // of a step, on this rank
  int64_t skipped() const;
  int64_t skipped_in_row() const;
  std::vector<std::string> group_names() const;  // "embedding", "layers.0", …, "final_norm", "head"
  Engine& engine() { return engine_; }
  MemoryPlan arena_peaks() const;
  // Counters of the optimizer as JSON, for checkpoints.
  std::string state_json() const;
  void restore_state(const std::string& json);

 private:
  void collect_sums(Tensor sums, int64_t attended, bool stop_requested);  // of this step, then over all ranks
  void update(int64_t step);
  int64_t group_of(const ParameterSpec& spec) const;
  int64_t groups() const { return config_.model.layers + 3; }
  int64_t attended_slot() const;  // behind squares and taps
  int64_t sum_count() const { return attended_slot() + 1; }
  Tensor sums_of(int64_t step) const;
  Tensor result_of(int64_t step) const;
  RunConfig config_;
  Stream& stream_;
  Engine engine_;
  Arena tap_scratch_;
  int microbatches_;
  Buffer scalars_;
  Tensor sums_, totals_, counters_, update_;  // float64
};

// What a run on meta says this rank needs: bytes of every arena; `ledger` gets memory, kernels and traffic of one step.
MemoryPlan plan_memory(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, Ledger& ledger);

}  // namespace shiftron
