// Single elements in bodies: loaded into the accumulation type, rounded once when stored.
#pragma once

#include <bit>
#include <cmath>
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

// A float32 in two halves of 16 bits: the nearest bfloat16 and the float32's own lower bits (the "parameter remainders"
// of NVIDIA Apex). Nothing is lost: because ties round away from zero, the lower bits alone show whether the upper ones
// were rounded up. A NaN is restored exactly; its weight half may read as infinity, or as zero if bits 15 to 30 are all
// ones. Arithmetic does not produce such NaNs, and a step whose loss or gradient norm is not finite changes no master.
constexpr bfloat16 weight_half(float master) {
  return bfloat16{static_cast<uint16_t>((std::bit_cast<uint32_t>(master) + 0x8000u) >> 16)};
}
constexpr uint16_t rest_half(float master) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(master));
}
constexpr float join_halves(bfloat16 weight, uint16_t rest) {
  const uint32_t upper = uint32_t{weight.bits} - (uint32_t{rest} >> 15);
  return std::bit_cast<float>((upper << 16) | rest);
}

namespace specification {
template <typename A>
A sigmoid(A x) {
  return A{1} / (A{1} + std::exp(-x));
}
}  // namespace specification

// body(T{}) with T the type of `dtype`.
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
