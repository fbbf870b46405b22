// What a CUDA backend needs beside the operands: its own kernels' scratch as they lay it out, and stated upper bounds of what
// libraries ask for. Plans of a GPU run are made with it on any machine; no body here.
#include "kernels/scratch.h"

namespace shiftron::cuda {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;
constexpr int64_t kMultiprocessors = 132;  // of an H100; a persistent grid has at most two blocks on each

int64_t blocks_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace

// Partial sums of d_w, one of each block of a persistent grid.
Shape rms_norm_scratch(int64_t rows, int64_t hidden) {
  return {std::max<int64_t>(1, std::min(rows, 2 * kMultiprocessors)), hidden};
}

// Partial sums of d_taps.
Shape shift_rope_scratch(int64_t rows, int64_t heads, int64_t taps) {
  return {std::max<int64_t>(1, blocks_of(rows, kShiftRun)), heads, std::max<int64_t>(1, taps)};
}

// cuDNN's backward asks for d_q in float32 and, where KV heads are shared, for d_k and d_v of every query head: with 4 MiB
// beside it that bounds what it planned for an H100 in bfloat16 (16 heads of 128 and 16,384 rows: 129 MiB; 20 over 4 and
// 32,768 rows: 642 MiB; 48 over 4 and 12,288 rows: 578 MiB). In elements of float32.
Shape attention_scratch(int64_t rows, int64_t heads, int64_t kv_heads, int64_t head_dim, DType dtype) {
  const int64_t elements = rows * heads * head_dim;
  const int64_t bytes = elements * size_of(DType::float32) + (heads > kv_heads ? 2 * elements * size_of(dtype) : 0);
  return {(bytes + 4 * kMegabyte) / size_of(DType::float32)};
}

// Operands are read as they lie; cublasLtMatmul has a workspace for all products, which library_workspace() counts.
Shape matmul_scratch() { return {0}; }

// NVIDIA's advice for Hopper is 32 MiB; candidates are asked for with twice that.
int64_t library_workspace() { return 64 * kMegabyte; }

// 4,096 rows of logits at a time and the whole share of the vocabulary: a row fits in a block's shared memory.
LossTiles loss_tiles(int64_t rows) {
  constexpr int64_t kRows = 4096;
  return {.rows = std::max<int64_t>(1, std::min(rows, kRows)), .blocks = 1};
}

}  // namespace shiftron::cuda
