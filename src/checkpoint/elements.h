// Elements of checkpoints from one type into another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "core/tensor.h"

namespace shiftron {

// `count` elements, float64, float32 or bfloat16 each side: rounded once to the nearest, ties to even; NaN stays NaN.
// `from` and `to` do not overlap.
void cast_elements(DType from_type, const void* from, DType to_type, void* to, int64_t count);

// Elements of `box` of a source's tensor in the type `as`; `room` holds them before that where the types differ.
void read_elements(TensorSource& source, int index, const Box& box, DType as, std::vector<std::byte>& values,
                   std::vector<std::byte>& room);

}  // namespace shiftron
