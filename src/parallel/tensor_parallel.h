// Tensor and sequence parallelism: the linear layer, which gathers rows and sums them over tp, and the layers that split
// the vocabulary.
#pragma once

#include <vector>

#include "parallel/parameter.h"
#include "parallel/run.h"

namespace shiftron {

// The residual stream, [local rows, hidden]: x, or before + x if `before` is defined; a reader then writes that to x.
struct [[nodiscard]] Residual {
  Residual(Tensor sum, Tensor not_yet_added = {}) : x(std::move(sum)), before(std::move(not_yet_added)) {}
  Tensor x, before;
};
// Writes the stream's sum to x and returns x.
Tensor sum_residual(Run& run, const Residual& stream);

// Which of a weight's features tp divides. The other side of the layer holds [local rows, …] of the stream: its rows are
// gathered before products, and summed over tp after them (Megatron's column- and row-parallel layers).
enum class SplitFeatures { output, input };

// y = x Wᵀ with this rank's piece of W; adjacent parameters are served by one product.
// The only place where a backward is split into its input and its weight part. It keeps nothing: backward gets the x of
// forward again, kept or recomputed by the module that owns the layer.
class Linear {
 public:
  // `in`: columns of the piece seen as a matrix.
  Linear(const ParameterSet& set, std::vector<Parameter*> parameters, int64_t in, SplitFeatures split);
  int64_t out() const;  // rows of the piece

  // Split output: from [local rows, in], the x [rows, in] of the calls below, in `arena`. With tp = 1 the tensor itself.
  Tensor gather_input(Run& run, const Tensor& local, Arena& arena) const;
  // x [rows, in] → [rows, out] in `arena`.
  Tensor forward(Run& run, const Tensor& x, Arena& arena) const;

  // Split input: residual + Σ over tp of x Wᵀ, in y.  x [rows, in]; residual, y [local rows, out], in separate memory.
  // With tp = 1 the product adds the residual; otherwise the reader of the stream does.
  Residual forward_add(Run& run, const Tensor& x, const Tensor& residual, Tensor y) const;
  // Split input: from the gradient of that sum, [local rows, out], the d_y [rows, out] of the calls below, in `arena`.
  Tensor gather_gradient(Run& run, const Tensor& d_local, Arena& arena) const;

  // d_x in `arena`: [rows, in], or with split output its sum over tp, [local rows, in].
  Tensor backward_input(Run& run, const Tensor& d_y, Arena& arena) const;
  // Adds the weight gradient, or queues it. A queued operand is copied unless the caller says that nobody writes it any
  // more (`unchanged`) and its memory outlives this action.
  enum class KeptOperand { none, d_y, x };
  void backward_weight(Run& run, const Tensor& d_y, const Tensor& x, KeptOperand unchanged = KeptOperand::none) const;
  // backward_input() and backward_weight().
  Tensor backward(Run& run, const Tensor& d_y, const Tensor& x, Arena& arena,
                  KeptOperand unchanged = KeptOperand::none) const;

 private:
  void multiply(Run& run, const Tensor& x, const Tensor& y) const;  // y [rows, out] = x Wᵀ
  Tensor partial_input_gradient(Run& run, const Tensor& d_y, Arena& arena) const;  // [rows, in], not summed over tp
  const ParameterSet* set_;
  std::vector<Parameter*> parameters_;
  int64_t in_;
  SplitFeatures split_;
};

// Runs what was queued for `run.microbatch`, which must be the oldest.
void run_weight_gradients(Run& run);

// Rows of the vocabulary split over tp, unevenly if necessary.
class VocabularyParallelEmbedding {
 public:
  struct Saved {
    Tensor ids;  // [rows] int32
  };
  VocabularyParallelEmbedding(Parameter* table) : table_(table) {}
  // y [local rows, hidden] in run.activations.
  Tensor forward(Run& run, const Tensor& ids, Saved& saved) const;
  void backward(Run& run, const Tensor& d_y, const Saved& saved) const;

 private:
  Parameter* table_;
};

// The head and the cross-entropy, in chunks of rows and in blocks of the vocabulary: no matrix of all logits exists,
// and forward also computes the gradient.
class VocabularyParallelLoss {
 public:
  struct Saved {
    Tensor d_x;  // [local rows, hidden]
  };
  VocabularyParallelLoss(Parameter* head) : head_(head) {}
  // totals [kLossTotals] float64 as add_losses; losses, correct [rows] A, undefined if not wanted.
  // In training: run.loss_scale · d(sum of losses)/d_x is saved, the head's gradient added.
  void forward(Run& run, const Tensor& x, const Tensor& targets, Saved& saved, Tensor totals, Tensor losses,
               Tensor correct = {}) const;
  Tensor backward(Run&, const Saved& saved) const { return saved.d_x; }
  // Logits of `x` [rows, hidden] over this rank's vocabulary, in run.scratch: [rows, local vocab] A, not rounded.
  Tensor unrounded_logits(Run& run, const Tensor& x) const;
  // The same for the tokens `range` of this rank's vocabulary, in A: bfloat16 operands are widened, products not
  // rounded.
  Tensor precise_logits(Run& run, const Tensor& x, Range range) const;
  Range vocabulary() const;

 private:
  struct Chunk;
  // Logits of the tokens `range` of this rank's vocabulary.
  Tensor logits(Run& run, const Tensor& x, Range range) const;
  Tensor logits(Run& run, const Tensor& x, Range range, DType type) const;
  // A block's tokens: within this rank's vocabulary, and the first one's number in the whole.
  Range block_of(const Chunk& chunk, int block) const;
  int64_t first_token(const Chunk& chunk, int block) const;
  void add_losses(Run& run, Chunk& chunk, Tensor totals) const;
  // Sets d_x [rows, hidden] and adds to the head's gradient; after add_losses().
  void add_gradients(Run& run, Chunk& chunk, Tensor d_x) const;

  Parameter* head_;
};

}  // namespace shiftron
