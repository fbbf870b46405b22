// ProbeHead: the head at asked rows of a microbatch alone: how likely asked tokens are, and which token is the
// likeliest. No matrix of all logits exists, and none leaves its rank.
#pragma once

#include <vector>

#include "model/transformer.h"

namespace shiftron {

struct RowProbe {
  int64_t row;     // of the microbatch
  int32_t target;  // of the vocabulary
};

struct ProbeAnswer {
  double log_probability = 0;  // natural; rounded to A
  bool greedy = false;         // no token is likelier, and none with a lower number as likely
};

class ProbeHead {
 public:
  // For microbatches of `rows` rows. `plan`: bytes of its arena, empty on meta. The stream outlives it.
  ProbeHead(Stream& stream, const ModelConfig& model, NumberTypes types, int tp, int64_t rows, const MemoryPlan& plan);
  // What is asked of x [local rows, hidden], which the last layer of `stage` returned; probes by ascending rows. Head
  // and softmax are computed in A. Every tp rank calls it with the same probes and gets the same. Waits for the stream.
  std::vector<ProbeAnswer> answer(const Run& run, const TransformerStage& stage, const Tensor& x,
                                  const std::vector<RowProbe>& probes);
  // On meta: measures.
  void plan(const Run& run, const TransformerStage& stage, const Tensor& x);
  MemoryPlan peaks() const { return {{arena_.name(), arena_.peak()}}; }

 private:
  void ask(const Run& run, const TransformerStage& stage, const Tensor& x, const RowProbe* probes, int64_t count,
           std::vector<ProbeAnswer>& answers);
  // Writes what ask() uploads to pinned memory; returns how many rows differ.
  int64_t arrange(const RowProbe* probes, int64_t count, Range vocabulary, int64_t first_row);
  void combine(const RowProbe* probes, int64_t count, int64_t rows, std::vector<ProbeAnswer>& answers) const;
  Range block_of(Range vocabulary, int block) const;  // counted from the first of them
  template <typename A>
  ProbeAnswer combine(const A* all, int64_t rows, int64_t probes, int64_t row, int64_t probe, int32_t target) const;

  Stream& stream_;
  DType activation_, accumulation_;
  int64_t hidden_;
  int tp_, blocks_;
  int64_t most_;  // probes at a time
  Arena arena_;
  Buffer pinned_;
  Tensor given_;  // int32 [2 + blocks, most]: rows, targets of none, places of targets among a block's logits
  Tensor taken_;  // A, of all tp ranks and blocks: [most, 3] statistics, [most, 2] maxima, [most] logits of targets
  std::vector<int64_t> row_of_probe_;
};

}  // namespace shiftron
