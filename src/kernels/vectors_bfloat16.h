// Sixteen elements of bfloat16 at a time, for loops that run where tile_body(ProductsBy::vectors) exists.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <array>

#include "core/tensor.h"
#include "kernels/tile_product.h"
// False warnings of g++ 12 in its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#define SHIFTRON_VECTOR_INLINE SHIFTRON_BFLOAT16_TARGET [[gnu::always_inline]] inline

namespace shiftron::fast {

inline constexpr int64_t kLanes = 16;
inline constexpr float kLog2E = 1.44269504f;

// Mask of the first `count` lanes of sixteen words, or of as many halves as a vector has; clamped to none and all.
constexpr __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, kLanes)) - 1u);
}
constexpr __mmask32 first_halves(int64_t count) {
  return static_cast<__mmask32>((uint64_t{1} << std::clamp<int64_t>(count, 0, 2 * kLanes)) - 1);
}

// Elements 0, half, 1, half + 1, …: interleaves the two halves.
template <size_t half>
inline constexpr auto kInterleaved = [] {
  std::array<uint16_t, 2 * half> order{};
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * half);
  return order;
}();

SHIFTRON_VECTOR_INLINE __m512 load_widened(const bfloat16* from, __mmask16 lanes) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from)), 16));
}
SHIFTRON_VECTOR_INLINE __m256i rounded(__m512 values) {
  return (__m256i)_mm512_cvtneps_pbh(values);
}
// Both rounded to bfloat16: `low` in the lower half.
SHIFTRON_VECTOR_INLINE __m512i rounded(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// 2ᶠ for 0 ≤ f ≤ 1, by a polynomial of degree 5 with minimal relative error: below 1.6e-7 in float32.
SHIFTRON_VECTOR_INLINE __m512 power_of_fraction(__m512 f) {
  __m512 series = _mm512_fmadd_ps(f, _mm512_set1_ps(0.00187757681f), _mm512_set1_ps(0.00898933969f));
  series = _mm512_fmadd_ps(f, series, _mm512_set1_ps(0.0558263175f));
  series = _mm512_fmadd_ps(f, series, _mm512_set1_ps(0.240153611f));
  series = _mm512_fmadd_ps(f, series, _mm512_set1_ps(0.693153083f));
  return _mm512_fmadd_ps(f, series, _mm512_set1_ps(0.99999994f));
}

// 2ˣ = 2ⁿ · 2ᶠ, where n is the largest integer ≤ x, which scalef computes itself. Below −126, x counts as −126; NaN
// stays NaN.
SHIFTRON_VECTOR_INLINE __m512 power_of_2(__m512 x) {
  constexpr int kFloor = 1;                                          // of reduce: x − n
  const __m512 bounded = _mm512_max_ps(_mm512_set1_ps(-126.0f), x);  // returns the second operand if x is NaN
  return _mm512_scalef_ps(power_of_fraction(_mm512_reduce_ps(bounded, kFloor)), bounded);
}

// The same, but 0 if x is below −126.
SHIFTRON_VECTOR_INLINE __m512 power_of_2_or_zero(__m512 x) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), power_of_2(x));
}

}  // namespace shiftron::fast
#endif
