// The loops of attention between its products in bfloat16, 16 columns at a time.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "kernels/attention_loops.h"
#include "kernels/tile_product.h"

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12, falsely, in its own header

namespace shiftron::fast {
namespace {

constexpr int64_t kLanes = 16;

// The columns of the tile that a row sees: [begin, end).
struct Seen {
  int64_t begin, end;
  int64_t first_vector() const { return begin / kLanes; }
  int64_t behind_vectors() const { return begin == end ? begin / kLanes : (end + kLanes - 1) / kLanes; }
  __mmask16 of(int64_t vector) const {
    const int64_t skipped = std::clamp<int64_t>(begin - vector * kLanes, 0, kLanes);
    const int64_t left = std::clamp<int64_t>(end - vector * kLanes, 0, kLanes);
    return static_cast<__mmask16>((0xFFFFu << skipped) & ((1u << left) - 1u));
  }
};

Seen seen_by(const TileMask& mask, int64_t row) {
  const int64_t position = row / mask.group;
  const int64_t begin = std::clamp<int64_t>(mask.start[position] - mask.begin, 0, mask.columns);
  return {begin, std::clamp<int64_t>(mask.last + position + 1 - mask.begin, begin, mask.columns)};
}

// exp as in cpu_loops.h; what lies below −87.3 counts as −87.3.
SHIFTRON_BFLOAT16_TARGET [[gnu::always_inline]] inline __m512 exponential(__m512 x) {
  const __m512 bounded = _mm512_max_ps(_mm512_set1_ps(-87.3f), x);  // the second one where x is NaN
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(bounded, _mm512_set1_ps(1.44269504f)), 0);
  const __m512 r =
      _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), bounded));
  __m512 series = _mm512_fmadd_ps(r, _mm512_set1_ps(0.001375138193f), _mm512_set1_ps(0.008368923426f));
  series = _mm512_fmadd_ps(r, series, _mm512_set1_ps(0.04166953423f));
  series = _mm512_fmadd_ps(r, series, _mm512_set1_ps(0.1666651840f));
  series = _mm512_fmadd_ps(r, series, _mm512_set1_ps(0.4999998859f));
  const __m512 value = _mm512_add_ps(_mm512_set1_ps(1.0f), _mm512_fmadd_ps(_mm512_mul_ps(r, r), series, r));
  return _mm512_scalef_ps(value, n);
}

SHIFTRON_BFLOAT16_TARGET [[gnu::always_inline]] inline __m256i rounded(__m512 values) {
  return (__m256i)_mm512_cvtneps_pbh(values);
}

SHIFTRON_BFLOAT16_TARGET [[gnu::always_inline]] inline void store(void* to, __m256i values) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), values);
}

SHIFTRON_BFLOAT16_TARGET [[gnu::always_inline]] inline __m512i paired(__m256i low, __m256i high) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

}  // namespace

SHIFTRON_BFLOAT16_TARGET void softmax_tile_bfloat16(const TileMask& mask, int64_t positions, int64_t stride, bool first,
                                                    int64_t head_dim, float scale, const float* scores, bfloat16* p,
                                                    int64_t p_stride, float* maxima, float* sums, float* accumulator) {
  const __m512 by = _mm512_set1_ps(scale);
  for (int64_t row = 0; row < positions * mask.group; ++row, scores += stride, p += p_stride) {
    const Seen seen = seen_by(mask, row);
    const int64_t begin = seen.first_vector(), end = seen.behind_vectors();
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 largest = lowest;
    for (int64_t i = begin; i < end; ++i) {
      largest = _mm512_max_ps(largest, _mm512_mask_loadu_ps(lowest, seen.of(i), scores + i * kLanes));
    }
    const float before = first ? -INFINITY : maxima[row];
    const float maximum = std::max(before, _mm512_reduce_max_ps(largest) * scale);
    const float reference = maximum == -INFINITY ? 0.0f : maximum;  // nothing seen, or nothing finite
    const __m512 offset = _mm512_set1_ps(reference);
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < begin; ++i) store(p + i * kLanes, _mm256_setzero_si256());
    for (int64_t i = begin; i < end; ++i) {
      const __m512 score = _mm512_loadu_ps(scores + i * kLanes);
      const __m512 counted = _mm512_maskz_mov_ps(seen.of(i), exponential(_mm512_fmsub_ps(score, by, offset)));
      sum = _mm512_add_ps(sum, counted);
      store(p + i * kLanes, rounded(counted));
    }
    for (int64_t i = end; i < stride / kLanes; ++i) store(p + i * kLanes, _mm256_setzero_si256());
    const float shrink = first ? 0.0f : std::exp(before - reference);
    sums[row] = _mm512_reduce_add_ps(sum) + (first ? 0.0f : sums[row] * shrink);
    maxima[row] = maximum;
    if (first || maximum == before) continue;
    float* sum_of_values = accumulator + row * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) sum_of_values[d] *= shrink;
  }
}

SHIFTRON_BFLOAT16_TARGET void softmax_gradient_tile_bfloat16(const TileMask& mask, int64_t positions, int64_t stride,
                                                             float scale, const float* log_sum_exp, const float* delta,
                                                             const float* scores, const float* d_p, int64_t p_stride,
                                                             bfloat16* d_scores, uint32_t* p_pairs, uint32_t* d_pairs) {
  const int64_t rows = positions * mask.group;
  const __m512 by = _mm512_set1_ps(scale);
  for (int64_t row = 0; row < rows; row += 2, p_pairs += p_stride, d_pairs += p_stride) {
    const int64_t count = std::min<int64_t>(2, rows - row);
    Seen seen[2] = {seen_by(mask, row), {}};
    seen[1] = count == 2 ? seen_by(mask, row + 1) : Seen{seen[0].begin, seen[0].begin};
    const int64_t begin = std::min(seen[0].first_vector(), seen[1].first_vector());
    const int64_t end = std::max(seen[0].behind_vectors(), seen[1].behind_vectors());
    const auto clear = [&](int64_t i) SHIFTRON_BFLOAT16_TARGET {
      for (int64_t j = 0; j < count; ++j) store(d_scores + (row + j) * p_stride + i * kLanes, _mm256_setzero_si256());
      _mm512_storeu_si512(p_pairs + i * kLanes, _mm512_setzero_si512());
      _mm512_storeu_si512(d_pairs + i * kLanes, _mm512_setzero_si512());
    };
    for (int64_t i = 0; i < begin; ++i) clear(i);
    for (int64_t i = end; i < stride / kLanes; ++i) clear(i);
    for (int64_t i = begin; i < end; ++i) {
      __m256i p[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, d[2] = {p[0], p[0]};
#pragma GCC unroll 2
      for (int64_t j = 0; j < 2; ++j) {
        if (j >= count) break;
        const int64_t at = (row + j) * stride + i * kLanes;
        const __mmask16 counts = seen[j].of(i);
        const __m512 probability = _mm512_maskz_mov_ps(
            counts,
            exponential(_mm512_fmsub_ps(_mm512_loadu_ps(scores + at), by, _mm512_set1_ps(log_sum_exp[row + j]))));
        const __m512 difference = _mm512_sub_ps(_mm512_loadu_ps(d_p + at), _mm512_set1_ps(delta[row + j]));
        const __m512 gradient = _mm512_maskz_mul_ps(counts, _mm512_mul_ps(by, probability), difference);
        p[j] = rounded(probability);
        d[j] = rounded(gradient);
        store(d_scores + (row + j) * p_stride + i * kLanes, d[j]);
      }
      _mm512_storeu_si512(p_pairs + i * kLanes, paired(p[0], p[1]));
      _mm512_storeu_si512(d_pairs + i * kLanes, paired(d[0], d[1]));
    }
  }
}

}  // namespace shiftron::fast

#else

namespace shiftron::fast {

void softmax_tile_bfloat16(const TileMask&, int64_t, int64_t, bool, int64_t, float, const float*, bfloat16*, int64_t,
                           float*, float*, float*) {
  CHECK(false, "no bfloat16 vectors on this processor");
}
void softmax_gradient_tile_bfloat16(const TileMask&, int64_t, int64_t, float, const float*, const float*, const float*,
                                    const float*, int64_t, bfloat16*, uint32_t*, uint32_t*) {
  CHECK(false, "no bfloat16 vectors on this processor");
}

}  // namespace shiftron::fast

#endif
