// The loops of attention between its products in bfloat16, 16 columns at a time.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/check.h"
#include "kernels/attention_loops.h"
#include "kernels/vectors_bfloat16.h"

#if defined(__x86_64__)
namespace shiftron::fast {
namespace {

// The columns of the tile that a row sees: [begin, end), and which of a vector's those are.
struct Seen {
  int64_t begin, end;
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

// The vectors of two rows: [begin, end) that one of them sees something of, of these [whole, masked) that both see
// whole.
struct Vectors {
  Vectors(const Seen& a, const Seen& b) {
    const auto first = [](const Seen& of) { return of.begin / kLanes; };
    const auto behind = [](const Seen& of) {
      return of.begin == of.end ? of.begin / kLanes : (of.end + kLanes - 1) / kLanes;
    };
    begin = std::min(first(a), first(b));
    end = std::max(behind(a), behind(b));
    whole = std::clamp((std::max(a.begin, b.begin) + kLanes - 1) / kLanes, begin, end);
    masked = std::clamp(std::min(a.end, b.end) / kLanes, whole, end);
  }
  // body(vector, whole) for all of them.
  template <typename Body>
  [[gnu::always_inline]] SHIFTRON_BFLOAT16_TARGET void each(const Body& body) const {
    for (int64_t i = begin; i < whole; ++i) body(i, std::false_type());
    for (int64_t i = whole; i < masked; ++i) body(i, std::true_type());
    for (int64_t i = masked; i < end; ++i) body(i, std::false_type());
  }
  int64_t begin, whole, masked, end;
};

int64_t vectors_of(const TileMask& mask) {
  return (mask.columns + kLanes - 1) / kLanes;
}

SHIFTRON_VECTOR_INLINE void store(void* to, __m256i values) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), values);
}

SHIFTRON_VECTOR_INLINE __m512i paired(__m256i low, __m256i high) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

}  // namespace

SHIFTRON_BFLOAT16_TARGET void unpack_bfloat16(const float* from, int64_t positions, const HeadRows<bfloat16>& to) {
  for (int64_t i = 0; i < positions; ++i) {
    for (int64_t head = 0; head < to.group; ++head, from += to.head_dim) {
      bfloat16* row = to.data + i * to.position_stride + head * to.head_stride;
      for (int64_t d = 0; d < to.head_dim; d += kLanes) {
        const __mmask16 these = first_lanes(to.head_dim - d);
        _mm256_mask_storeu_epi16(row + d, these, rounded(_mm512_maskz_loadu_ps(these, from + d)));
      }
    }
  }
}

SHIFTRON_BFLOAT16_TARGET void row_products_bfloat16(int64_t positions, const HeadRows<const bfloat16>& a,
                                                    const HeadRows<const bfloat16>& b, float* delta) {
  for (int64_t i = 0; i < positions; ++i) {
    for (int64_t head = 0; head < a.group; ++head) {
      const bfloat16* left = a.data + i * a.position_stride + head * a.head_stride;
      const bfloat16* right = b.data + i * b.position_stride + head * b.head_stride;
      __m512 sum = _mm512_setzero_ps();
      for (int64_t d = 0; d < a.head_dim; d += kLanes) {
        const __mmask16 these = first_lanes(a.head_dim - d);
        sum = _mm512_fmadd_ps(load_widened(left + d, these), load_widened(right + d, these), sum);
      }
      *delta++ = _mm512_reduce_add_ps(sum);
    }
  }
}

SHIFTRON_BFLOAT16_TARGET void softmax_tile_bfloat16(const TileMask& mask, int64_t positions, int64_t stride, bool first,
                                                    int64_t head_dim, float scale, const float* scores, bfloat16* p,
                                                    float* maxima, float* sums, float* accumulator) {
  const __m512 by = _mm512_set1_ps(scale * kLog2E), lowest = _mm512_set1_ps(-INFINITY);
  const int64_t all = vectors_of(mask), rows = positions * mask.group;
  // Found some rows ahead: the largest of a vector's lanes takes as long as some vectors.
  constexpr int64_t kAhead = 2;
  float ahead[kAhead];
  const auto largest_of = [&](int64_t row) SHIFTRON_BFLOAT16_TARGET {
    const Seen seen = seen_by(mask, row);
    __m512 largest = lowest;
    Vectors(seen, seen).each([&](int64_t i, auto whole) SHIFTRON_BFLOAT16_TARGET {
      const float* at = scores + row * stride + i * kLanes;
      largest = _mm512_max_ps(largest, whole() ? _mm512_loadu_ps(at) : _mm512_mask_loadu_ps(lowest, seen.of(i), at));
    });
    return _mm512_reduce_max_ps(largest);
  };
  for (int64_t row = 0; row < std::min(kAhead, rows); ++row) ahead[row] = largest_of(row);
  for (int64_t row = 0; row < rows; ++row, p += stride) {
    const Seen seen = seen_by(mask, row);
    const Vectors vectors(seen, seen);
    const float before = first ? -INFINITY : maxima[row];
    const float maximum = std::max(before, ahead[row % kAhead] * scale);
    if (row + kAhead < rows) ahead[row % kAhead] = largest_of(row + kAhead);
    const float reference = maximum == -INFINITY ? 0.0f : maximum;  // nothing seen, or nothing finite
    const __m512 offset = _mm512_set1_ps(reference * kLog2E);
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < vectors.begin; ++i) store(p + i * kLanes, _mm256_setzero_si256());
    vectors.each([&](int64_t i, auto whole) SHIFTRON_BFLOAT16_TARGET {
      const __m512 power = power_of_2(_mm512_fmsub_ps(_mm512_loadu_ps(scores + row * stride + i * kLanes), by, offset));
      const __m512 counted = whole() ? power : _mm512_maskz_mov_ps(seen.of(i), power);
      sum = _mm512_add_ps(sum, counted);
      store(p + i * kLanes, rounded(counted));
    });
    for (int64_t i = vectors.end; i < all; ++i) store(p + i * kLanes, _mm256_setzero_si256());
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
                                                             const float* scores, const float* d_p, bfloat16* d_scores,
                                                             uint32_t* p_pairs, uint32_t* d_pairs) {
  const int64_t rows = positions * mask.group, all = vectors_of(mask);
  const __m512 by = _mm512_set1_ps(scale * kLog2E), factor = _mm512_set1_ps(scale);
  for (int64_t row = 0; row < rows; row += 2, p_pairs += stride, d_pairs += stride) {
    const int64_t count = std::min<int64_t>(2, rows - row);
    Seen seen[2] = {seen_by(mask, row), {}};
    seen[1] = count == 2 ? seen_by(mask, row + 1) : Seen{seen[0].begin, seen[0].begin};
    const Vectors vectors(seen[0], seen[1]);
    const auto clear = [&](int64_t i) SHIFTRON_BFLOAT16_TARGET {
      for (int64_t j = 0; j < count; ++j) store(d_scores + (row + j) * stride + i * kLanes, _mm256_setzero_si256());
      _mm512_storeu_si512(p_pairs + i * kLanes, _mm512_setzero_si512());
      _mm512_storeu_si512(d_pairs + i * kLanes, _mm512_setzero_si512());
    };
    for (int64_t i = 0; i < vectors.begin; ++i) clear(i);
    for (int64_t i = vectors.end; i < all; ++i) clear(i);
    __m512 offset[2], deltas[2];
    for (int64_t j = 0; j < count; ++j) {
      offset[j] = _mm512_set1_ps(log_sum_exp[row + j] * kLog2E);
      deltas[j] = _mm512_set1_ps(delta[row + j]);
    }
    vectors.each([&](int64_t i, auto whole) SHIFTRON_BFLOAT16_TARGET {
      __m256i p[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, d[2] = {p[0], p[0]};
#pragma GCC unroll 2
      for (int64_t j = 0; j < 2; ++j) {
        if (!whole() && j >= count) break;
        const int64_t at = (row + j) * stride + i * kLanes;
        const __mmask16 counts = whole() ? static_cast<__mmask16>(0xFFFF) : seen[j].of(i);
        const __m512 power = power_of_2(_mm512_fmsub_ps(_mm512_loadu_ps(scores + at), by, offset[j]));
        const __m512 probability = whole() ? power : _mm512_maskz_mov_ps(counts, power);
        const __m512 difference = _mm512_sub_ps(_mm512_loadu_ps(d_p + at), deltas[j]);
        const __m512 scaled = _mm512_mul_ps(factor, probability);
        const __m512 gradient =
            whole() ? _mm512_mul_ps(scaled, difference) : _mm512_maskz_mul_ps(counts, scaled, difference);
        p[j] = rounded(probability);
        d[j] = rounded(gradient);
        store(d_scores + at, d[j]);
      }
      _mm512_storeu_si512(p_pairs + i * kLanes, paired(p[0], p[1]));
      _mm512_storeu_si512(d_pairs + i * kLanes, paired(d[0], d[1]));
    });
  }
}

}  // namespace shiftron::fast

#else

namespace shiftron::fast {

void unpack_bfloat16(const float*, int64_t, const HeadRows<bfloat16>&) {
  CHECK(false, "no bfloat16 vectors on this processor");
}
void row_products_bfloat16(int64_t, const HeadRows<const bfloat16>&, const HeadRows<const bfloat16>&, float*) {
  CHECK(false, "no bfloat16 vectors on this processor");
}

void softmax_tile_bfloat16(const TileMask&, int64_t, int64_t, bool, int64_t, float, const float*, bfloat16*, float*,
                           float*, float*) {
  CHECK(false, "no bfloat16 vectors on this processor");
}
void softmax_gradient_tile_bfloat16(const TileMask&, int64_t, int64_t, float, const float*, const float*, const float*,
                                    const float*, bfloat16*, uint32_t*, uint32_t*) {
  CHECK(false, "no bfloat16 vectors on this processor");
}

}  // namespace shiftron::fast

#endif
