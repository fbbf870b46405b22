// TransformerLayer, and TransformerStage: what one pipeline stage computes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/attention.h"
#include "model/mlp.h"
#include "model/norm.h"
#include "model/recompute.h"

namespace shiftron {

// x + attention(norm(x)), then x + mlp(norm(x)).
class TransformerLayer {
 public:
  struct Saved {
    RmsNorm::Saved attention_norm, mlp_norm;
    Attention::Saved attention;
    Mlp::Saved mlp;
  };
  TransformerLayer(ParameterSet& set, const ModelConfig& config, int layer, bool recompute_mlp);
  // [local rows, hidden]; the result is in run.activations. After the call in.x holds the summed residual. With a cache,
  // the rows follow those in it.
  Residual forward(Run& run, const Residual& in, const Tensor& rope, Saved& saved,
                   AttentionCache* cache = nullptr) const;
  // d_x: gradient of the layer's output on entry, of its input on return.
  void backward(Run& run, InOut d_x, const Tensor& rope, const Saved& saved) const;
  const Attention& attention() const { return attention_; }
  Attention& attention() { return attention_; }

 private:
  RmsNorm attention_norm_;
  Attention attention_;
  RmsNorm mlp_norm_;
  Mlp mlp_;
};

// Tokens of one microbatch, int32 [rows]; targets −1 are not counted.
struct Batch {
  Tensor ids, targets;
};

// Which piece of the model a stage is.
struct StagePlace {
  Range layers;
  bool first = true, last = true;  // holds the embedding, the head
  bool both_ends = true;           // the rank that holds the embedding also holds the head, here or in another piece
};

class TransformerStage {
 public:
  struct Saved {
    VocabularyParallelEmbedding::Saved embedding;
    std::vector<TransformerLayer::Saved> layers;
    std::vector<Recompute<TransformerLayer>::Saved> recomputed;  // instead, if whole layers are recomputed
    RmsNorm::Saved final_norm;
    VocabularyParallelLoss::Saved loss;
  };
  // Declares the parameters of its piece. If another piece here has already declared the tied table, both use it.
  TransformerStage(ParameterSet& set, const ModelConfig& config, const StagePlace& place, RecomputeKind recompute);
  bool first() const { return embedding_ != nullptr; }
  bool last() const { return loss_ != nullptr; }

  // Builds the RoPE table for positions 0 … positions − 1, and room for taps. Once, after ParameterSet::allocate().
  void make_tables(Stream& stream, int64_t positions);
  // Tells run.exchange, if set, that all gradients of this stage are final.
  void complete_gradients(Run& run) const;
  // Computes once what a step derives from its weights: taps. Call before the first forward after weights change.
  void prepare(Stream& stream) const;
  // The shifts of the layers here: visit(layer, stream: 0 query, 1 key, 2 value; shift).
  void for_each_shift(const std::function<void(int layer, int stream, const KvShift& shift)>& visit) const;

  // `input` [local rows, hidden] from the stage before (unused on the first). Returns the output for the next stage;
  // on the last stage adds to totals as add_losses, writes losses and correct if defined, and returns nothing.
  Tensor forward(Run& run, const Batch& batch, const Tensor& input, Saved& saved, Tensor totals, Tensor losses,
                 Tensor correct = {}) const;
  // The same up to the head: returns what the last layer here returned, on the last stage too.
  Tensor forward_layers(Run& run, const Batch& batch, const Tensor& input, Saved& saved) const;
  // After one of these, unless whole layers are recomputed: what the heads of each layer here attended with. `of` is in
  // run.scratch, log_sum_exp [local heads, rows] A.
  using AttentionVisitor = std::function<void(int layer, const Attention::Streams& of, const Tensor& log_sum_exp)>;
  void visit_attention(Run& run, const Saved& saved, const AttentionVisitor& visit) const;
  // `d_output` from the next stage (unused on the last), in an arena that outlives the call; its memory becomes the
  // gradient of the input, which is returned (nothing on the first stage).
  Tensor backward(Run& run, const Tensor& d_output, const Saved& saved) const;

  // Decoding, rows not split over tp: returns what the last layer here returns, [rows, hidden] in run.activations, for
  // the rows that follow those in `caches`; `input` as in forward().
  Tensor decode(Run& run, const Tensor& ids, const Tensor& input, std::vector<AttentionCache>& caches) const;
  std::vector<AttentionCache> make_caches(Arena& arena, int64_t capacity) const;
  // On the last stage: logits [rows, local vocab] A in run.scratch of what its last layer returned.
  Tensor logits(Run& run, const Tensor& x) const;
  // On the last stage: such rows after the last norm, [rows, hidden] in run.scratch, and their logits over the tokens
  // `range` of this rank's vocabulary, [rows, range.size()] A in run.scratch.
  Tensor normed(Run& run, const Tensor& x) const;
  Tensor precise_logits(Run& run, const Tensor& normed_rows, Range range) const;
  Range vocabulary() const { return loss_->vocabulary(); }  // of this rank

 private:
  // caches: of the layers here; null: none.
  Residual layers_forward(Run& run, const Batch& batch, const Tensor& input, Saved& saved,
                          std::vector<AttentionCache>* caches = nullptr) const;
  const ParameterSet* set_;
  ModelConfig config_;
  RecomputeKind recompute_;
  DType activation_;
  std::unique_ptr<VocabularyParallelEmbedding> embedding_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<RmsNorm> final_norm_;
  std::unique_ptr<VocabularyParallelLoss> loss_;
  Range range_;
  Buffer table_, taps_;
  Tensor rope_;  // [2, positions, head_dim/2] A
};

}  // namespace shiftron
