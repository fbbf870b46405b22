// Scratch that a CUDA backend needs in addition to the operands: that of our own kernels, in their layout, and stated
// upper bounds for the libraries. GPU runs are planned with it on any machine; no body is here.
#include "kernels/scratch.h"

namespace shiftron::cuda {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;
constexpr int64_t kMultiprocessors = 132;  // of an H100; a persistent grid has at most two blocks on each

int64_t blocks_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// In tiles, as cuDNN stores them.
int64_t score_bytes(int64_t length, int64_t heads) {
  constexpr int64_t kTile = 128;
  const int64_t padded = blocks_of(length, kTile) * kTile;
  return heads * padded * padded * size_of(DType::bfloat16);
}

// Splits `count` items into equal pieces; one item takes `each`. Returns the largest number of items per piece that
// takes no more than `most`; at least one if there are any.
int64_t largest_part(int64_t count, int64_t each, int64_t most) {
  for (int64_t parts = count; parts > 1; --parts) {
    if (count % parts == 0 && parts * each <= most) return parts;
  }
  return std::min<int64_t>(count, 1);
}

}  // namespace

// Partial sums of one tensor after another.
Shape sum_of_squares_scratch(const std::vector<Squares>& squares) {
  int64_t partials = 0;
  for (const Squares& of : squares) partials += square_partials(of.x.count());
  return {partials};
}

// Partial sums, one for each block.
Shape sum_columns_scratch(int64_t rows, int64_t columns) {
  constexpr int64_t kMostBlocks = 256, kRows = 64;
  return {std::min(kMostBlocks, blocks_of(rows, kRows)), columns};
}

// Partial sums of d_w, one for each block of a persistent grid.
Shape rms_norm_scratch(int64_t rows, int64_t hidden) {
  return {std::max<int64_t>(1, std::min(rows, 2 * kMultiprocessors)), hidden};
}

// Partial sums of d_taps, at most one for each run.
Shape shift_rope_scratch(int64_t rows, int64_t heads, int64_t taps) {
  return {heads, std::max<int64_t>(1, taps), std::max<int64_t>(1, blocks_of(rows, kShiftRun))};
}

AttentionProblem attention_piece(const AttentionProblem& problem, int64_t most_scores) {
  AttentionProblem piece = problem;
  if (!problem.deterministic || problem.pass == AttentionPass::forward) return piece;
  const int64_t group = problem.heads / problem.kv_heads;
  const int64_t of_head = score_bytes(problem.length, group);
  piece.kv_heads = largest_part(problem.kv_heads, of_head, most_scores);
  piece.heads = piece.kv_heads * group;
  piece.samples =
      piece.kv_heads < problem.kv_heads ? 1 : largest_part(problem.samples, problem.kv_heads * of_head, most_scores);
  return piece;
}

// In elements of float32: the rows' starts and what cuDNN's backward needs, which is d_q in float32, one number for
// each row and head and, if KV heads are shared, d_k and d_v of every query head. With another 4 MiB this bounds what
// cuDNN planned for all shipped configurations (tests/machine/cuda/planning). For whole samples, an engine that runs on
// all GPUs needs room for its own d_q. The deterministic backward needs scores instead of d_q, and all of this for one
// piece.
Shape attention_scratch(const AttentionProblem& problem, DType dtype) {
  AttentionProblem backward = problem;
  backward.pass = AttentionPass::backward;
  backward.deterministic = problem.deterministic && dtype == DType::bfloat16;  // others are not planned
  const AttentionProblem piece = attention_piece(backward);
  const int64_t head_rows = piece.samples * piece.length * piece.heads;
  const int64_t starts = problem.samples * problem.length;
  const int64_t large = piece.deterministic
                            ? piece.samples * score_bytes(piece.length, piece.heads)
                            : (piece.documents ? 1 : 2) * head_rows * piece.head_dim * size_of(DType::float32);
  const int64_t shared = piece.heads > piece.kv_heads ? 2 * head_rows * piece.head_dim * size_of(dtype) : 0;
  return {((starts + head_rows) * size_of(DType::float32) + large + shared + 4 * kMegabyte) / size_of(DType::float32)};
}

// Operands are read in place; cublasLtMatmul has one workspace for all products, which library_workspace() counts.
Shape matmul_scratch() {
  return {0};
}

// NVIDIA recommends 32 MiB for Hopper; candidates are requested with twice that.
int64_t library_workspace() {
  return 64 * kMegabyte;
}

// 4,096 rows of logits at a time and the rank's whole share of the vocabulary; the kernels read each row once.
LossTiles loss_tiles(int64_t rows) {
  constexpr int64_t kRows = 4096;
  return {.rows = std::max<int64_t>(1, std::min(rows, kRows)), .blocks = 1};
}

}  // namespace shiftron::cuda
