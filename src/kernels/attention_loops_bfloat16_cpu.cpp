// The loops of attention between its bfloat16 products, 16 columns at a time.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/check.h"
#include "kernels/attention_loops.h"
#include "kernels/vectors_bfloat16.h"

#if defined(__x86_64__)
namespace shiftron::fast {
namespace {

// The columns of the tile that a row sees, [begin, end), and a mask of those within a vector.
struct Seen {
  int64_t begin, end;
  __mmask16 of(int64_t vector) const {
    const int64_t skipped = std::clamp<int64_t>(begin - vector * kLanes, 0, kLanes);
    const int64_t left = std::clamp<int64_t>(end - vector * kLanes, 0, kLanes);
    return static_cast<__mmask16>((0xFFFFu << skipped) & ((1u << left) - 1u));
  }
};

Seen seen_by(const TileMask& mask, int64_t position) {
  const int64_t begin = std::clamp<int64_t>(mask.start[position] - mask.begin, 0, mask.columns);
  return {begin, std::clamp<int64_t>(mask.last + position + 1 - mask.begin, begin, mask.columns)};
}

// What each row sees, one row after another.
class RowsSeen {
 public:
  explicit RowsSeen(const TileMask& mask) : mask_(mask) {}
  Seen take() {
    if (head_ == 0) seen_ = seen_by(mask_, position_);
    if (++head_ == mask_.group) {
      head_ = 0;
      ++position_;
    }
    return seen_;
  }

 private:
  const TileMask& mask_;
  Seen seen_{};
  int64_t position_ = 0, head_ = 0;
};

// The vectors of two rows: in [begin, end) at least one row sees something; within these, both rows see all of
// [whole, masked).
struct Vectors {
  Vectors(const Seen& a, const Seen& b) {
    const auto first = [](const Seen& of) { return of.begin / kLanes; };
    const auto end_of = [](const Seen& of) {
      return of.begin == of.end ? of.begin / kLanes : (of.end + kLanes - 1) / kLanes;
    };
    begin = std::min(first(a), first(b));
    end = std::max(end_of(a), end_of(b));
    whole = std::clamp((std::max(a.begin, b.begin) + kLanes - 1) / kLanes, begin, end);
    masked = std::clamp(std::min(a.end, b.end) / kLanes, whole, end);
  }
  // Calls body(vector, whole) for all of them.
  template <typename Body>
  [[gnu::always_inline]] SHIFTRON_BFLOAT16_TARGET void each(const Body& body) const {
    for (int64_t i = begin; i < whole; ++i) body(i, std::false_type());
    for (int64_t i = whole; i < masked; ++i) body(i, std::true_type());
    for (int64_t i = masked; i < end; ++i) body(i, std::false_type());
  }
  // Takes the whole ones two at a time.
  template <typename One, typename Two>
  [[gnu::always_inline]] SHIFTRON_BFLOAT16_TARGET void each_or_two(const One& one, const Two& two) const {
    for (int64_t i = begin; i < whole; ++i) one(i);
    int64_t i = whole;
    for (; i + 1 < masked; i += 2) two(i);
    for (; i < end; ++i) one(i);
  }
  int64_t begin, whole, masked, end;
};

int64_t vectors_of(const TileMask& mask) {
  return (mask.columns + kLanes - 1) / kLanes;
}

struct Larger {
  SHIFTRON_VECTOR_INLINE static __m512 of(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
};
struct Sum {
  SHIFTRON_VECTOR_INLINE static __m512 of(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
};

template <typename Combine>
SHIFTRON_VECTOR_INLINE __m512 quarters(__m512 a, __m512 b) {
  return Combine::of(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}

// Lane i of the result: the lanes of rows[i], combined in an order that is the same for all rows.
template <typename Combine>
SHIFTRON_VECTOR_INLINE __m512 of_each(const __m512 (&rows)[kLanes]) {
  __m512 fours[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512* of = rows + 4 * i;
    const __m512d a = _mm512_castps_pd(Combine::of(_mm512_unpacklo_ps(of[0], of[1]), _mm512_unpackhi_ps(of[0], of[1])));
    const __m512d b = _mm512_castps_pd(Combine::of(_mm512_unpacklo_ps(of[2], of[3]), _mm512_unpackhi_ps(of[2], of[3])));
    fours[i] = Combine::of(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  return quarters<Combine>(quarters<Combine>(fours[0], fours[1]), quarters<Combine>(fours[2], fours[3]));
}

SHIFTRON_VECTOR_INLINE void store(void* to, __m256i values) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), values);
}

// exp(score · scale − reference) of sixteen scores; scale and reference are already multiplied by log2(e).
SHIFTRON_VECTOR_INLINE __m512 exponential_of(const float* scores, __m512 scale, __m512 reference) {
  return power_of_2(_mm512_fmsub_ps(_mm512_loadu_ps(scores), scale, reference));
}

// Words with one element of the lower half (low) and one of the upper half.
SHIFTRON_VECTOR_INLINE __m512i paired(__m512i halves) {
  return _mm512_permutexvar_epi16(_mm512_loadu_si512(kInterleaved<kLanes>.data()), halves);
}

}  // namespace

SHIFTRON_BFLOAT16_TARGET void pack_bfloat16(const HeadRows<const bfloat16>& from, int64_t positions, bfloat16* to) {
  for (int64_t i = 0; i < positions; ++i) {
    for (int64_t head = 0; head < from.group; ++head, to += from.head_dim) {
      const bfloat16* row = from.data + i * from.position_stride + head * from.head_stride;
      int64_t d = 0;
      for (; d + 2 * kLanes <= from.head_dim; d += 2 * kLanes) _mm512_storeu_si512(to + d, _mm512_loadu_si512(row + d));
      if (d == from.head_dim) continue;
      const __mmask32 these = first_halves(from.head_dim - d);
      _mm512_mask_storeu_epi16(to + d, these, _mm512_maskz_loadu_epi16(these, row + d));
    }
  }
}

SHIFTRON_BFLOAT16_TARGET void unpack_bfloat16(const float* from, int64_t positions, const float* divisors,
                                              const HeadRows<bfloat16>& to) {
  for (int64_t i = 0; i < positions; ++i) {
    for (int64_t head = 0; head < to.group; ++head, from += to.head_dim) {
      bfloat16* row = to.data + i * to.position_stride + head * to.head_stride;
      const __m512 factor = _mm512_set1_ps(divisors == nullptr ? 1.0f : 1.0f / *divisors++);
      int64_t d = 0;
      for (; d + 2 * kLanes <= to.head_dim; d += 2 * kLanes) {
        _mm512_storeu_si512(row + d, rounded(_mm512_mul_ps(factor, _mm512_loadu_ps(from + d)),
                                             _mm512_mul_ps(factor, _mm512_loadu_ps(from + d + kLanes))));
      }
      for (; d < to.head_dim; d += kLanes) {
        const __mmask16 these = first_lanes(to.head_dim - d);
        _mm256_mask_storeu_epi16(row + d, these,
                                 rounded(_mm512_mul_ps(factor, _mm512_maskz_loadu_ps(these, from + d))));
      }
    }
  }
}

SHIFTRON_BFLOAT16_TARGET void row_products_bfloat16(int64_t positions, const HeadRows<const bfloat16>& a,
                                                    const HeadRows<const bfloat16>& b, float* delta) {
  const __mmask16 last = first_lanes((a.head_dim - 1) % kLanes + 1), all = first_lanes(kLanes);
  const int64_t whole = (a.head_dim - 1) / kLanes * kLanes;
  for (int64_t i = 0; i < positions; ++i) {
    for (int64_t head = 0; head < a.group; ++head) {
      const bfloat16* left = a.data + i * a.position_stride + head * a.head_stride;
      const bfloat16* right = b.data + i * b.position_stride + head * b.head_stride;
      __m512 sum = _mm512_mul_ps(load_widened(left + whole, last), load_widened(right + whole, last));
      for (int64_t d = 0; d < whole; d += kLanes) {
        sum = _mm512_fmadd_ps(load_widened(left + d, all), load_widened(right + d, all), sum);
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
  RowsSeen next(mask);
  for (int64_t begin = 0; begin < rows; begin += kLanes) {  // sixteen rows; each of their numbers fits into one vector
    const int64_t count = std::min(kLanes, rows - begin);
    const __mmask16 these = first_lanes(count);
    Seen seen[kLanes];
    __m512 of_rows[kLanes];
    for (int64_t row = 0; row < kLanes; ++row) {
      __m512 largest[2] = {lowest, lowest};  // used alternately, because each maximum waits for the previous one
      if (row < count) {
        seen[row] = next.take();
        const float* at = scores + (begin + row) * stride;
        Vectors(seen[row], seen[row])
            .each_or_two(
                [&](int64_t i) SHIFTRON_BFLOAT16_TARGET {
                  largest[0] =
                      _mm512_max_ps(largest[0], _mm512_mask_loadu_ps(lowest, seen[row].of(i), at + i * kLanes));
                },
                [&](int64_t i) SHIFTRON_BFLOAT16_TARGET {
                  for (int64_t j = 0; j < 2; ++j) {
                    largest[j] = _mm512_max_ps(largest[j], _mm512_loadu_ps(at + (i + j) * kLanes));
                  }
                });
      }
      of_rows[row] = _mm512_max_ps(largest[0], largest[1]);
    }
    const __m512 largest = _mm512_mul_ps(of_each<Larger>(of_rows), _mm512_set1_ps(scale));
    const __m512 before = first ? lowest : _mm512_maskz_loadu_ps(these, maxima + begin);
    const __m512 maximum = _mm512_max_ps(largest, before);
    _mm512_mask_storeu_ps(maxima + begin, these, maximum);
    // If nothing is seen, or nothing finite, the reference is 0.
    const __mmask16 some = _mm512_cmp_ps_mask(maximum, lowest, _CMP_NEQ_UQ);
    const __m512 offsets = _mm512_maskz_mul_ps(some, maximum, _mm512_set1_ps(kLog2E));
    alignas(64) float offset[kLanes];
    _mm512_store_ps(offset, offsets);
    for (int64_t row = 0; row < count; ++row, p += stride) {
      const float* at = scores + (begin + row) * stride;
      const __m512 from = _mm512_set1_ps(offset[row]);
      const Vectors vectors(seen[row], seen[row]);
      __m512 sum = _mm512_setzero_ps();
      for (int64_t i = 0; i < vectors.begin; ++i) store(p + i * kLanes, _mm256_setzero_si256());
      vectors.each_or_two(
          [&](int64_t i) SHIFTRON_BFLOAT16_TARGET {
            const __m512 power = exponential_of(at + i * kLanes, by, from);
            const __m512 counted = _mm512_maskz_mov_ps(seen[row].of(i), power);
            sum = _mm512_add_ps(sum, counted);
            store(p + i * kLanes, rounded(counted));
          },
          [&](int64_t i) SHIFTRON_BFLOAT16_TARGET {
            const __m512 power = exponential_of(at + i * kLanes, by, from);
            const __m512 power2 = exponential_of(at + i * kLanes + kLanes, by, from);
            sum = _mm512_add_ps(sum, _mm512_add_ps(power, power2));
            _mm512_storeu_si512(p + i * kLanes, rounded(power, power2));
          });
      for (int64_t i = vectors.end; i < all; ++i) store(p + i * kLanes, _mm256_setzero_si256());
      of_rows[row] = sum;
    }
    __m512 sum = of_each<Sum>(of_rows);
    if (!first) {
      const __m512 shrink = power_of_2_or_zero(_mm512_fmsub_ps(before, _mm512_set1_ps(kLog2E), offsets));
      sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(these, sums + begin), shrink, sum);
      alignas(64) float factor[kLanes];
      _mm512_store_ps(factor, shrink);
      for (unsigned grown = _mm512_mask_cmp_ps_mask(these, maximum, before, _CMP_NEQ_UQ); grown != 0;
           grown &= grown - 1) {
        const int64_t row = __builtin_ctz(grown);
        float* sum_of_values = accumulator + (begin + row) * head_dim;
        for (int64_t d = 0; d < head_dim; ++d) sum_of_values[d] *= factor[row];
      }
    }
    _mm512_mask_storeu_ps(sums + begin, these, sum);
  }
}

SHIFTRON_BFLOAT16_TARGET void softmax_gradient_tile_bfloat16(const TileMask& mask, int64_t positions, int64_t stride,
                                                             float scale, const float* log_sum_exp, const float* delta,
                                                             const float* scores, const float* d_p, bfloat16* d_scores,
                                                             uint32_t* p_pairs, uint32_t* d_pairs) {
  const int64_t rows = positions * mask.group, all = vectors_of(mask);
  const __m512 by = _mm512_set1_ps(scale * kLog2E), factor = _mm512_set1_ps(scale);
  RowsSeen next(mask);
  for (int64_t row = 0; row < rows; row += 2, p_pairs += stride, d_pairs += stride) {
    const int64_t count = std::min<int64_t>(2, rows - row);
    Seen seen[2] = {next.take(), {}};
    seen[1] = count == 2 ? next.take() : Seen{seen[0].begin, seen[0].begin};
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
      deltas[j] = _mm512_set1_ps(delta[row + j] * scale);
    }
    vectors.each([&](int64_t i, auto whole) SHIFTRON_BFLOAT16_TARGET {
      __m512 p[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}, d[2] = {p[0], p[0]};
#pragma GCC unroll 2
      for (int64_t j = 0; j < 2; ++j) {
        if (!whole() && j >= count) break;
        const int64_t at = (row + j) * stride + i * kLanes;
        const __mmask16 counts = whole() ? static_cast<__mmask16>(0xFFFF) : seen[j].of(i);
        const __m512 power = exponential_of(scores + at, by, offset[j]);
        const __m512 difference = _mm512_fmsub_ps(_mm512_loadu_ps(d_p + at), factor, deltas[j]);
        p[j] = whole() ? power : _mm512_maskz_mov_ps(counts, power);
        d[j] = whole() ? _mm512_mul_ps(power, difference) : _mm512_maskz_mul_ps(counts, power, difference);
      }
      const __m512i gradients = rounded(d[0], d[1]);
      store(d_scores + row * stride + i * kLanes, _mm512_castsi512_si256(gradients));
      if (whole() || count == 2) {
        store(d_scores + (row + 1) * stride + i * kLanes, _mm512_extracti64x4_epi64(gradients, 1));
      }
      _mm512_storeu_si512(p_pairs + i * kLanes, paired(rounded(p[0], p[1])));
      _mm512_storeu_si512(d_pairs + i * kLanes, paired(gradients));
    });
  }
}

}  // namespace shiftron::fast

#else

namespace shiftron::fast {

void pack_bfloat16(const HeadRows<const bfloat16>&, int64_t, bfloat16*) {
  CHECK(false, "no bfloat16 vectors on this processor");
}
void unpack_bfloat16(const float*, int64_t, const float*, const HeadRows<bfloat16>&) {
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
