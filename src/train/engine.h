// Engine: one rank's pieces of the model, its parameters and memory, and the execution of a schedule over microbatches.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "kernels/libraries.h"
#include "model/transformer.h"
#include "parallel/bucket_exchange.h"
#include "parallel/stage_memory.h"
#include "train/received_rows.h"
#include "train/staging.h"

namespace shiftron {

// Elements of a full bucket: enough to use a network's bandwidth, which takes more with more ranks.
int64_t bucket_elements(const RunConfig& config, const ParallelLayout& layout);

NumberTypes number_types(Precision precision);

struct ModelPiece {
  int stage;                               // the pipeline stage that holds it
  const TransformerStage* here = nullptr;  // null if that is not this rank's stage
};

// Totals of an evaluation for each source of its rows.
struct SourceTotals {
  struct Rows {
    int64_t source, begin, end;
  };
  Tensor totals{};                                   // [sources, kLossTotals] float64; undefined: none are wanted
  std::function<std::vector<Rows>(int index)> of{};  // the sources of a microbatch's rows
};

class Engine {
 public:
  // `plan`: bytes of every arena, empty on meta. Allocates parameters (with gradients and moments if `training`).
  // `schedule`: unset = as configured. `attending_rows`: number of rows that attend if documents share rows of a
  // microbatch of one sample; the engine then supports only run_layers(). 0 = no rows are shared.
  Engine(const RunConfig& config, Groups groups, Stream& stream, const MemoryPlan& plan, bool training,
         std::optional<Schedule> schedule = {}, int64_t attending_rows = 0);
  ~Engine() { end(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Returns when nothing of this rank touches its memory any more: all work is done, or, while an exception unwinds,
  // abandoned.
  void end() noexcept;

  // Clears gradients, then runs forward and backward of `microbatches` microbatches. Gradients of run.loss_scale · Σ
  // losses are accumulated over them and over ranks; those of what this rank updates are then the same on all ranks
  // that hold them. totals [kLossTotals] float64 += this rank's (Σ losses, counted targets, correct ones), on tp rank 0
  // of the last stage only. Returns the number of rows that the rows of these microbatches attend to, each counting
  // itself.
  int64_t accumulate_gradients(int microbatches, const BatchReader& read, Tensor totals);
  // The same for one microbatch, except that random rows replace those of other stages, and nothing is sent. Afterwards
  // everything that it launches is loaded; loading on a GPU may wait for kernels that wait for messages.
  void accumulate_gradients_locally(const BatchReader& read, Tensor totals);
  // Forward only. `visit` is called on the last stage once per microbatch with its losses [rows] of A.
  using LossVisitor = std::function<void(int index, const Tensor& losses)>;
  // `sources`, if given: rows of microbatch `index` are also added to sources.totals, each to the row of its source.
  void evaluate(int microbatches, const BatchReader& read, Tensor totals, const LossVisitor& visit = {},
                const SourceTotals& sources = {});

  // Forward only, up to the head. On the last stage `visit` gets the last layer's output for each microbatch, [local
  // rows, hidden], in run.activations. Documents see nothing of each other, whatever the configuration says; targets
  // are unused.
  using LayersVisitor = std::function<void(Run& run, const TransformerStage& stage, const Tensor& x)>;
  void run_layers(int microbatches, const BatchReader& read, const LayersVisitor& visit);

  // Call it after the weights of a bucket were updated: sends them to the ranks that did not update them.
  void gather(const Bucket& bucket) { exchange_.gather(stream_, bucket); }
  // The same for all buckets, after this rank has written the weights that it updates. Returns when those of other
  // ranks have arrived.
  void gather_all();

  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }
  const Groups& groups() const { return groups_; }
  Stream& stream() { return stream_; }
  Libraries& libraries() { return libraries_; }
  bool last() const;  // holds the head
  // The pieces of the model, in order.
  std::vector<ModelPiece> pieces() const;
  // The shifts of this rank's layers, in the order of TransformerStage.
  void for_each_shift(const std::function<void(int layer, int stream, const KvShift& shift)>& visit) const;
  MemoryPlan arena_peaks() const;  // as measured by a run on meta

 private:
  // State of a microbatch in one chunk, from its first action to its last. A MicrobatchMemory holds one at a time.
  struct Microbatch {
    int chunk = -1, number = -1;  // in the step; −1: none yet
    DeviceBatch rows;
    Tensor input, output, d_output, d_input;
    TransformerStage::Saved saved;
    std::vector<Work> sends;
  };
  struct MicrobatchMemory {
    std::unique_ptr<Arena> activations, operands;
    Microbatch held;
  };
  // A piece of the model.
  struct Chunk {
    std::unique_ptr<TransformerStage> stage;
    int before = -1;  // this rank's chunk that sends it rows and takes its gradients; −1: they are messages
    WeightGradientQueue weight_gradients;
  };
  struct Pass {
    bool training;
    bool alone = false;  // without messages
    int microbatches;
    Tensor totals;
    LossVisitor visit{};
    SourceTotals sources{};
    LayersVisitor visit_layers{};              // instead of the head
    std::vector<std::vector<int>> arena_of{};  // [chunks][microbatches]
    int64_t attended = 0;
  };
  void make_chunk(int number, bool training);
  void make_arenas(const MemoryPlan& plan);
  void make_slots(const MemoryPlan& plan, bool training);
  int64_t run_schedule(const BatchReader& read, Pass pass);
  void expect_rows(const std::vector<Action>& actions, bool come);
  void receive_ahead();
  int64_t train(const BatchReader& read, const Pass& pass);
  MicrobatchMemory& memory_of(int chunk, int number, const Pass& pass);
  // Memory of another chunk of this rank, which must hold the same microbatch.
  MicrobatchMemory& neighbour_memory(int chunk, const Microbatch& microbatch, const Pass& pass);
  void begin(int chunk, int number, const BatchReader& read, Pass& pass);
  void clear(MicrobatchMemory& memory);
  void execute(const Action& action, const Pass& pass);
  void forward(Chunk& chunk, MicrobatchMemory& memory, const Pass& pass);
  void add_by_source(const Pass& pass, const Microbatch& microbatch, const Tensor& losses, const Tensor& correct);
  void backward(Chunk& chunk, MicrobatchMemory& memory, const Pass& pass);
  Run make_run(Chunk& chunk, const MicrobatchMemory& memory, bool training);
  // Gradients are complete after the last microbatch.
  static bool completes(const Microbatch& microbatch, const Pass& pass) {
    return microbatch.number == pass.microbatches - 1;
  }
  Shape row_shape() const;  // of the rows that stages exchange
  RunConfig config_;
  Groups groups_;
  Stream& stream_;
  Libraries libraries_;
  Schedule schedule_;
  ParameterSet parameters_;
  BucketExchange exchange_;
  std::vector<Chunk> chunks_;
  StageMemory needed_;
  std::vector<MicrobatchMemory> memory_;  // as `needed_` says; on meta one per chunk
  MemoryPlan peaks_;                      // of arenas, by chunk
  int64_t counted_ = 0;                   // on meta: their bytes, as the ledger has them
  std::unique_ptr<Arena> scratch_;
  std::map<int, ReceivedRows> inputs_, d_outputs_;  // by the stage that sends them
  BatchStaging staging_;
};

// Bytes of all arenas for microbatches; each arena is as large as the largest chunk that it holds. `peaks`: of every
// chunk.
int64_t arena_bytes(const StageMemory& memory, const MemoryPlan& peaks);

// Elements of all logical tensors, and of those that are neither embedding nor head.
struct ParameterCount {
  int64_t total = 0, outside_embedding = 0;
};
// From the declarations, on meta: takes no memory.
ParameterCount count_parameters(const RunConfig& config);

}  // namespace shiftron
