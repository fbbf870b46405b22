// The loops of the CPU's attention between its matrix products, cloned per instruction set.
#include <cmath>

#include "kernels/attention_loops.h"
#include "kernels/cpu_loops.h"

namespace shiftron::fast {
namespace {

template <typename T>
SHIFTRON_INLINE void pack_rows(const T* from, int64_t position_stride, int64_t head_stride, int64_t positions,
                               int64_t group, int64_t head_dim, float factor, float* to) {
  for (int64_t i = 0; i < positions; ++i) {
    for (int64_t head = 0; head < group; ++head, to += head_dim) {
      const T* row = from + i * position_stride + head * head_stride;
#pragma omp simd
      for (int64_t d = 0; d < head_dim; ++d) to[d] = to_accumulate(row[d]) * factor;
    }
  }
}

template <typename T>
SHIFTRON_INLINE void unpack_rows(const float* from, int64_t positions, float factor, T* to, int64_t position_stride,
                                 int64_t head_stride, int64_t group, int64_t head_dim) {
  for (int64_t i = 0; i < positions; ++i) {
    for (int64_t head = 0; head < group; ++head, from += head_dim) {
      T* row = to + i * position_stride + head * head_stride;
#pragma omp simd
      for (int64_t d = 0; d < head_dim; ++d) row[d] = round_to<T>(from[d] * factor);
    }
  }
}

template <typename T>
SHIFTRON_INLINE void products_of_rows(const T* a, int64_t position_stride, int64_t head_stride, int64_t positions,
                                      int64_t group, int64_t head_dim, const float* b, float* delta) {
  for (int64_t i = 0; i < positions; ++i) {
    for (int64_t head = 0; head < group; ++head, b += head_dim) {
      const T* row = a + i * position_stride + head * head_stride;
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t d = 0; d < head_dim; ++d) sum += to_accumulate(row[d]) * b[d];
      *delta++ = sum;
    }
  }
}

// The columns of the tile that a position sees, [first, second), and the columns [begin, end) around them that vectors
// of 16 cover. Rows have room for whole vectors, so no loop below has a remainder.
struct Band {
  int32_t first, second, begin, end;
};
SHIFTRON_INLINE Band band(const TileMask& mask, int64_t position) {
  const int64_t low = std::clamp<int64_t>(mask.start[position] - mask.begin, 0, mask.columns);
  const int64_t high = std::clamp<int64_t>(mask.last + position + 1 - mask.begin, low, mask.columns);
  return {static_cast<int32_t>(low), static_cast<int32_t>(high), static_cast<int32_t>(low / 16 * 16),
          static_cast<int32_t>(low == high ? low / 16 * 16 : (high + 15) / 16 * 16)};
}

SHIFTRON_INLINE void clear(float* row, int32_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) row[i] = 0.0f;
}

}  // namespace

SHIFTRON_CLONES void pack(const HeadRows<const float>& from, int64_t positions, float factor, float* to) {
  pack_rows(from.data, from.position_stride, from.head_stride, positions, from.group, from.head_dim, factor, to);
}
SHIFTRON_CLONES void pack(const HeadRows<const bfloat16>& from, int64_t positions, float factor, float* to) {
  pack_rows(from.data, from.position_stride, from.head_stride, positions, from.group, from.head_dim, factor, to);
}
SHIFTRON_CLONES void unpack(const float* from, int64_t positions, float factor, const HeadRows<float>& to) {
  unpack_rows(from, positions, factor, to.data, to.position_stride, to.head_stride, to.group, to.head_dim);
}
SHIFTRON_CLONES void unpack(const float* from, int64_t positions, float factor, const HeadRows<bfloat16>& to) {
  unpack_rows(from, positions, factor, to.data, to.position_stride, to.head_stride, to.group, to.head_dim);
}

SHIFTRON_CLONES void softmax_tile(const TileMask& mask, int64_t positions, int64_t stride, bool first, int64_t head_dim,
                                  float* scores, float* maxima, float* sums, float* accumulator) {
  for (int64_t row = 0; row < positions * mask.group; ++row) {
    const Band seen = band(mask, row / mask.group);
    float* score = scores + row * stride;
    clear(score, 0, seen.begin);
    clear(score, seen.end, mask.columns);
    int32_t order = order_of(first ? -INFINITY : maxima[row]);
#pragma omp simd reduction(max : order)
    for (int32_t i = seen.begin; i < seen.end; ++i) {
      const float candidate = i >= seen.first && i < seen.second ? score[i] : -INFINITY;
      order = std::max(order, order_of(candidate));
    }
    const float maximum = value_of(order);
    const float reference = maximum == -INFINITY ? 0.0f : maximum;  // nothing seen, or nothing finite
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int32_t i = seen.begin; i < seen.end; ++i) {
      const float p = exponential(score[i] - reference);
      score[i] = i >= seen.first && i < seen.second ? p : 0.0f;
      sum += score[i];
    }
    if (!first && maximum != maxima[row]) {
      const float shrink = exponential(maxima[row] - reference);
      sums[row] *= shrink;
      float* sum_of_values = accumulator + row * head_dim;
#pragma omp simd
      for (int64_t d = 0; d < head_dim; ++d) sum_of_values[d] *= shrink;
    }
    sums[row] = first ? sum : sums[row] + sum;
    maxima[row] = maximum;
  }
}

void log_of_sums(int64_t rows, const float* maxima, const float* sums, float* log_sum_exp) {
  for (int64_t row = 0; row < rows; ++row) log_sum_exp[row] = maxima[row] + std::log(sums[row]);
}

SHIFTRON_CLONES void finish_softmax(int64_t rows, int64_t head_dim, const float* maxima, const float* sums,
                                    float* accumulator, float* log_sum_exp) {
  log_of_sums(rows, maxima, sums, log_sum_exp);
  for (int64_t row = 0; row < rows; ++row) {
    const float factor = 1.0f / sums[row];
    float* sum_of_values = accumulator + row * head_dim;
#pragma omp simd
    for (int64_t d = 0; d < head_dim; ++d) sum_of_values[d] *= factor;
  }
}

SHIFTRON_CLONES void row_products(int64_t positions, const HeadRows<const float>& a, const float* b, float* delta) {
  products_of_rows(a.data, a.position_stride, a.head_stride, positions, a.group, a.head_dim, b, delta);
}
SHIFTRON_CLONES void row_products(int64_t positions, const HeadRows<const bfloat16>& a, const float* b, float* delta) {
  products_of_rows(a.data, a.position_stride, a.head_stride, positions, a.group, a.head_dim, b, delta);
}

SHIFTRON_CLONES void softmax_gradient_tile(const TileMask& mask, int64_t positions, int64_t stride,
                                           const float* log_sum_exp, const float* delta, float* scores, float* d_p) {
  for (int64_t row = 0; row < positions * mask.group; ++row) {
    const Band seen = band(mask, row / mask.group);
    float* p = scores + row * stride;
    float* d_score = d_p + row * stride;
    clear(p, 0, seen.begin);
    clear(p, seen.end, mask.columns);
    clear(d_score, 0, seen.begin);
    clear(d_score, seen.end, mask.columns);
    const float reference = log_sum_exp[row];
    const float offset = delta[row];
#pragma omp simd
    for (int32_t i = seen.begin; i < seen.end; ++i) {
      const bool counts = i >= seen.first && i < seen.second;
      const float probability = exponential(p[i] - reference);
      const float gradient = probability * (d_score[i] - offset);
      p[i] = counts ? probability : 0.0f;
      d_score[i] = counts ? gradient : 0.0f;
    }
  }
}

}  // namespace shiftron::fast
