// Each backend's answers to the queries in kernels.h: sizes of scratch, and how work is divided.
#pragma once

#include <algorithm>

#include "kernels/attention_choices.h"
#include "kernels/kernels.h"

namespace shiftron::cuda {
constexpr unsigned kShiftRun = 16;         // rows that one block of the shift processes, at least
constexpr int64_t kSquareRun = 16 * 1024;  // elements whose squares one block sums

// Number of partial sums of the squares of this many elements: one for each block.
constexpr int64_t square_partials(int64_t count) {
  return (count + kSquareRun - 1) / kSquareRun;
}
Shape sum_of_squares_scratch(const std::vector<Squares>& squares);
Shape sum_columns_scratch(int64_t rows, int64_t columns);
Shape rms_norm_scratch(int64_t rows, int64_t hidden);
Shape shift_rope_scratch(int64_t rows, int64_t heads, int64_t taps);

// A deterministic backward of attention stores a bfloat16 number for each query row and key of its sample. It runs in
// equal pieces of samples or of KV heads, as large as fit into this many bytes, but at least one KV head of one sample.
constexpr int64_t kMostScores = int64_t{512} << 20;
// One of the pieces; the whole problem if it is not split.
AttentionProblem attention_piece(const AttentionProblem& problem, int64_t most_scores = kMostScores);
// Enough for both forward and backward.
Shape attention_scratch(const AttentionProblem& problem, DType dtype = DType::bfloat16);
Shape matmul_scratch();
int64_t library_workspace();
LossTiles loss_tiles(int64_t rows);
}  // namespace shiftron::cuda
