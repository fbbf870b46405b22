// Attention of a single query row on the CPU, for decoding.
#pragma once

#include "kernels/kernels.h"

namespace shiftron::fast {

// attention_forward of one row, in float32 or bfloat16. Returns false if q has more rows or if the scratch for the
// tiles is too small for this many heads; then the tiled version handles it. Results do not depend on the thread count.
bool attention_of_one_row(const CpuOptions& cpu, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                          AttentionShape shape, Tensor out, Tensor log_sum_exp, Tensor scratch);

}  // namespace shiftron::fast
