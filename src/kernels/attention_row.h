// Attention of a single query row on the CPU, as decoding asks for it.
#pragma once

#include "kernels/kernels.h"

namespace shiftron::fast {

// attention_forward of one row, in float32 or bfloat16. False when q has more rows, or when scratch for the tiles is
// not enough for so many heads: the tiles serve those. A result's bits do not depend on the threads.
bool attention_of_one_row(const CpuOptions& cpu, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                          AttentionShape shape, Tensor out, Tensor log_sum_exp, Tensor scratch);

}  // namespace shiftron::fast
