// Ordered reduction: one result from the parts of several ranks, in rank order, the same bits on every machine.
#pragma once

#include "parallel/communicator.h"

namespace shiftron {

// out[i] = ((part 0 [i] + part 1 [i]) + part 2 [i]) + ..., or their maximum (NaN wins). Part r begins
// r * count elements into `parts`; `out` does not overlap. bfloat16 adds in float32 and rounds once. uint8 has no sum.
void reduce_in_rank_order(DType dtype, Reduction reduction, const void* parts, int ranks, int64_t count, void* out);

}  // namespace shiftron
