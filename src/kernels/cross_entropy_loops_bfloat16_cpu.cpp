#include <cmath>

#include "core/check.h"
#include "kernels/cross_entropy_loops.h"
#include "kernels/element.h"
#include "kernels/vectors_bfloat16.h"

#if defined(__x86_64__)
namespace shiftron::fast {
namespace {

constexpr int64_t kHalves = 2 * kLanes;

// Maps the bits of bfloat16 to integers of the same order, and back.
SHIFTRON_VECTOR_INLINE __m512i order_of(__m512i bits) {
  return _mm512_xor_si512(bits, _mm512_and_si512(_mm512_srai_epi16(bits, 15), _mm512_set1_epi16(0x7fff)));
}

// Calls body(vector, lanes) with 16 logits each; the last vector may have fewer lanes.
template <typename Body>
SHIFTRON_VECTOR_INLINE void each_vector(int64_t count, const Body& body) {
  constexpr __mmask16 kAll = 0xFFFF;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, kAll);
  if (i < count) body(i, first_lanes(count - i));
}

}  // namespace

SHIFTRON_BFLOAT16_TARGET float maximum_of_vectors(const bfloat16* logits, int64_t count) {
  const __m512i lowest = order_of(_mm512_set1_epi16(static_cast<short>(to_bfloat16(-INFINITY).bits)));
  __m512i largest = lowest;
  int64_t i = 0;
  for (; i + kHalves <= count; i += kHalves) {
    largest = _mm512_max_epi16(largest, order_of(_mm512_loadu_si512(logits + i)));
  }
  if (i < count) {
    const __mmask32 left = first_halves(count - i);
    largest = _mm512_mask_max_epi16(largest, left, largest, order_of(_mm512_maskz_loadu_epi16(left, logits + i)));
  }
  const __m512i low = _mm512_cvtepi16_epi32(_mm512_castsi512_si256(largest));
  const __m512i high = _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(largest, 1));
  const int order = _mm512_reduce_max_epi32(_mm512_max_epi32(low, high));
  return to_accumulate(bfloat16{static_cast<uint16_t>(order ^ ((order >> 15) & 0x7fff))});
}

SHIFTRON_BFLOAT16_TARGET float exponential_sum_of_vectors(const bfloat16* logits, int64_t count, float reference) {
  const __m512 by = _mm512_set1_ps(kLog2E), offset = _mm512_set1_ps(reference * kLog2E);
  __m512 sum = _mm512_setzero_ps();
  each_vector(count, [&](int64_t i, __mmask16 lanes) SHIFTRON_BFLOAT16_TARGET {
    const __m512 power = power_of_2_or_zero(_mm512_fmsub_ps(load_widened(logits + i, lanes), by, offset));
    sum = _mm512_mask_add_ps(sum, lanes, sum, power);
  });
  return _mm512_reduce_add_ps(sum);
}

SHIFTRON_BFLOAT16_TARGET void probabilities_of_vectors(bfloat16* logits, int64_t count, float log_sum_exp,
                                                       float scale) {
  const __m512 by = _mm512_set1_ps(kLog2E), offset = _mm512_set1_ps(log_sum_exp * kLog2E),
               factor = _mm512_set1_ps(scale);
  each_vector(count, [&](int64_t i, __mmask16 lanes) SHIFTRON_BFLOAT16_TARGET {
    const __m512 power = power_of_2_or_zero(_mm512_fmsub_ps(load_widened(logits + i, lanes), by, offset));
    _mm256_mask_storeu_epi16(logits + i, lanes, rounded(_mm512_mul_ps(power, factor)));
  });
}

}  // namespace shiftron::fast

#else

namespace shiftron::fast {

float maximum_of_vectors(const bfloat16*, int64_t) {
  throw_crash("no bfloat16 vectors on this processor");
}
float exponential_sum_of_vectors(const bfloat16*, int64_t, float) {
  throw_crash("no bfloat16 vectors on this processor");
}
void probabilities_of_vectors(bfloat16*, int64_t, float, float) {
  throw_crash("no bfloat16 vectors on this processor");
}

}  // namespace shiftron::fast

#endif
