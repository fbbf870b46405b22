// ProbeHead evaluates the head only at requested rows of a microbatch: how likely the requested tokens are, and which
// token is the likeliest. The full matrix of logits is never stored, and logits do not leave their rank.
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
  bool greedy = false;         // the target is the likeliest token, and the first of equally likely ones
};

class ProbeHead {
 public:
  // For microbatches of `rows` rows. `plan`: bytes of its arena, empty on meta. The stream must outlive it.
  ProbeHead(Stream& stream, const ModelConfig& model, NumberTypes types, int tp, int64_t rows, const MemoryPlan& plan);
  // Answers the probes from x [local rows, hidden], the output of the last layer of `stage`. The probes are sorted by
  // row. Head and softmax are computed in A. Every tp rank calls it with the same probes and gets the same answers.
  // Waits for the stream.
  std::vector<ProbeAnswer> answer(const Run& run, const TransformerStage& stage, const Tensor& x,
                                  const std::vector<RowProbe>& probes);
  // On meta: measures the arena's peak.
  void plan(const Run& run, const TransformerStage& stage, const Tensor& x);
  MemoryPlan peaks() const { return {{arena_.name(), arena_.peak()}}; }

 private:
  void ask(const Run& run, const TransformerStage& stage, const Tensor& x, const RowProbe* probes, int64_t count,
           std::vector<ProbeAnswer>& answers);
  // Writes what ask() uploads to pinned memory; returns the number of distinct rows.
  int64_t arrange(const RowProbe* probes, int64_t count, Range vocabulary, int64_t first_row);
  void combine(const RowProbe* probes, int64_t count, int64_t rows, std::vector<ProbeAnswer>& answers) const;
  Range block_of(Range vocabulary, int block) const;  // relative to the first token of `vocabulary`
  template <typename A>
  ProbeAnswer combine(const A* all, int64_t rows, int64_t probes, int64_t row, int64_t probe, int32_t target) const;

  Stream& stream_;
  DType activation_, accumulation_;
  int64_t hidden_;
  int tp_, blocks_;
  int64_t most_;  // probes processed at once
  Arena arena_;
  Buffer pinned_;
  Tensor given_;  // int32 [2 + blocks, most]: rows, absent targets (−1), places of targets among a block's logits
  Tensor taken_;  // A, of all tp ranks and blocks: [most, 3] statistics, [most, 2] maxima, [most] logits of targets
  std::vector<int64_t> row_of_probe_;
};

}  // namespace shiftron
