// IEEE 754 binary16, a storage format of files: nothing computes in it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace shiftron {

inline float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = bits >> 10 & 0x1Fu, fraction = bits & 0x3FFu;
  if (exponent == 0) {  // zero, or fraction · 2^−24
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 0x1F ? 0xFFu : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// Nearest, ties to even; infinite from 65520 on. NaN becomes infinite.
inline uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {  // below 2^−14: steps of 2^−24
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(std::abs(value), 24))));
  }
  return static_cast<uint16_t>(sign | (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13);
}

}  // namespace shiftron
