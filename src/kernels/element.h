// Single elements in bodies: loaded into the accumulation type, rounded once when stored; rows of strided tensors.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/tensor.h"

namespace shiftron {

template <typename T>
struct AccumulationOf {
  using type = T;
};
template <>
struct AccumulationOf<bfloat16> {
  using type = float;
};
template <typename T>
using Accumulation = typename AccumulationOf<T>::type;

inline double to_accumulate(double value) {
  return value;
}
inline float to_accumulate(float value) {
  return value;
}
inline float to_accumulate(bfloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Nearest, ties to even; NaN stays NaN.
inline bfloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return bfloat16{static_cast<uint16_t>(value != value ? quiet : rounded)};
}

template <typename T, typename A>
T round_to(A value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Elements before the start of a row: `row` counts all dims but the last together.
inline int64_t row_offset(const ConstTensor& tensor, int64_t row) {
  int64_t offset = 0;
  for (int dim = tensor.dims() - 2; dim >= 0; --dim) {
    offset += row % tensor.extent(dim) * tensor.stride(dim);
    row /= tensor.extent(dim);
  }
  return offset;
}

// body(T{}) with T the type that `dtype` names.
template <typename Body>
void for_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::float64:
      return body(double{});
    case DType::float32:
      return body(float{});
    case DType::bfloat16:
      return body(bfloat16{});
    default:
      CHECK(false, name_of(dtype), " is not a floating type");
  }
}

}  // namespace shiftron
