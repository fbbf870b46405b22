// Elements of checkpoints from one type into another.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace shiftron {

// `count` elements, float64, float32 or bfloat16 each side: rounded once to the nearest, ties to even; NaN stays NaN.
// `from` and `to` do not overlap.
void cast_elements(DType from_type, const void* from, DType to_type, void* to, int64_t count);

}  // namespace shiftron
