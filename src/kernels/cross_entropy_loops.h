// Rows of bfloat16 logits by vectors (cross_entropy_loops_bfloat16_cpu.cpp), where tile_body(ProductsBy::vectors)
// exists.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace shiftron::fast {

// The largest logit, in the order that order_of (cpu_loops.h) defines.
float maximum_of_vectors(const bfloat16* logits, int64_t count);
// Σ exp(logit − reference)
float exponential_sum_of_vectors(const bfloat16* logits, int64_t count, float reference);
// logits ← exp(logit − log_sum_exp) · scale
void probabilities_of_vectors(bfloat16* logits, int64_t count, float log_sum_exp, float scale);

}  // namespace shiftron::fast
