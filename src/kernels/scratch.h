// The answers of each backend to what kernels.h asks: scratch, and how work is cut.
#pragma once

#include <algorithm>

#include "kernels/kernels.h"

namespace shiftron::cuda {
constexpr int64_t kShiftRun = 64;  // rows of a head that one block of the shift's backward goes through

Shape rms_norm_scratch(int64_t rows, int64_t hidden);
Shape shift_rope_scratch(int64_t rows, int64_t heads, int64_t taps);
Shape attention_scratch(int64_t rows, int64_t heads, int64_t kv_heads, int64_t head_dim, DType dtype);
Shape matmul_scratch();
int64_t library_workspace();
LossTiles loss_tiles(int64_t rows);
}  // namespace shiftron::cuda
