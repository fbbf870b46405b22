// Engine: one rank's stage, its parameters and memory, and the execution of a schedule over microbatches.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/transformer.h"
#include "parallel/pipeline.h"
#include "train/run_config.h"

namespace shiftron {

// Host arrays of one microbatch: [micro_batch · sequence_length] each.
struct HostBatch {
  std::vector<int32_t> ids, targets;     // targets: −1 = not counted
  std::vector<uint8_t> document_starts;  // 1 where a document starts
};
// Fills microbatch `index` of this rank.
using BatchReader = std::function<void(int index, HostBatch& batch)>;

// Of every rank in a step.
int microbatches_of_step(const RunConfig& config, const ParallelLayout& layout);

NumberTypes number_types(Precision precision);

// Of a bf16 run: which products are faster in bfloat16 here, timed on rank 0 and told to all, since bits depend on it.
void choose_bfloat16_products(Precision precision, Communicator& world, Stream& stream);

// In which large products of such a run are made.
DType product_type(Precision precision, const Stream& stream);

class Engine {
 public:
  // `plan`: bytes of every arena, empty on meta. Allocates parameters (with gradients and moments if `training`).
  Engine(const RunConfig& config, Groups groups, Stream& stream, const MemoryPlan& plan, bool training);

  // Forward and backward of `microbatches` microbatches; gradients of run.loss_scale · Σ losses are added up over them,
  // not over ranks. totals [2] float64 += this rank's (Σ losses, counted targets): of the last stage, tp rank 0 alone.
  // Returns how many rows, itself included, the rows of these microbatches attend to.
  int64_t accumulate_gradients(int microbatches, const BatchReader& read, Tensor totals);
  // Forward alone; losses [microbatches] of A, where wanted, on the last stage: called once a microbatch.
  using LossVisitor = std::function<void(int index, const HostBatch& batch, const Tensor& losses)>;
  void evaluate(int microbatches, const BatchReader& read, Tensor totals, const LossVisitor& visit = {});

  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }
  const Groups& groups() const { return groups_; }
  Stream& stream() { return stream_; }
  const TransformerStage& stage() const { return *stage_; }
  MemoryPlan arena_peaks() const;  // what a run on meta measured

 private:
  struct Microbatch;
  Run make_run(Arena& arena, bool training);
  int64_t run_schedule(int microbatches, const BatchReader& read, Tensor totals, bool training,
                       const LossVisitor& visit);
  int64_t load_batch(Microbatch& microbatch, const HostBatch& batch);
  RunConfig config_;
  Groups groups_;
  Stream& stream_;
  ParameterSet parameters_;
  std::unique_ptr<TransformerStage> stage_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::unique_ptr<Arena> scratch_;
  WeightGradientQueue weight_gradients_;
  HostBatch host_batch_;
};

// Elements of all logical tensors, and of those that are neither embedding nor head.
struct ParameterCount {
  int64_t total = 0, outside_embedding = 0;
};
// From the declarations, on meta: takes no memory.
ParameterCount count_parameters(const RunConfig& config);

// For each row the first row it attends to, the first its shift may read, and its position; rows are counted over the
// whole microbatch. Arrays of samples · sequence_length.
void find_documents(const std::vector<uint8_t>& document_starts, int64_t sequence_length, bool document_reset,
                    ShiftReset shift_reset, int32_t* attention_start, int32_t* shift_start, int32_t* positions);

}  // namespace shiftron
