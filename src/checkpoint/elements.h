// Casts elements of checkpoints between types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "core/tensor.h"

namespace shiftron {

// Casts `count` elements between float64, float32 and bfloat16: rounded once to the nearest, ties to even; NaN stays
// NaN. `from` and `to` do not overlap.
void cast_elements(DType from_type, const void* from, DType to_type, void* to, int64_t count);

// Reads elements of `box` of a source's tensor as type `as` into `values`; `room` is a buffer for them before a cast.
void read_elements(TensorSource& source, int index, const Box& box, DType as, std::vector<std::byte>& values,
                   std::vector<std::byte>& room);

}  // namespace shiftron
