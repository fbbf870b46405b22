// Small float32 products: 6 rows of sums by as many vectors as fit into registers along with their operands. Also
// transposition, which makes right operands of keys.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/cpu_loops.h"
#include "kernels/lines_ahead.h"
#include "kernels/tile_product.h"

namespace shiftron::fast {
namespace {

constexpr int kRows = kFloat32TileRows;
constexpr int64_t kPanelFloats = 6144;  // of b, which stay in a first-level cache of 32 KiB
constexpr int kLinesOfBlock = 4;        // prefetched by each block

struct Operands {
  int64_t k;
  LeftFloats a;
  const float* b;
  int64_t b_stride;
  bool keep;
  float* c;
  int64_t c_stride;
  LinesAhead* ahead;
};

template <int lanes>
struct Vector {
  typedef float Type __attribute__((vector_size(lanes * sizeof(float)), aligned(alignof(float)), may_alias));
};
template <>
struct Vector<1> {
  using Type = float;
};

// c [rows, vectors · lanes].
template <int lanes, int rows, int vectors>
SHIFTRON_INLINE void block(const Operands& by) {
  using Floats = typename Vector<lanes>::Type;
  fetch_lines(by.ahead, kLinesOfBlock);
  Floats sum[rows][vectors];
#pragma GCC unroll 12
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (int vector = 0; vector < vectors; ++vector) {
      sum[row][vector] =
          by.keep ? *reinterpret_cast<const Floats*>(by.c + row * by.c_stride + vector * lanes) : Floats{};
    }
  }
  const float* a = by.a.data;
  const float* b = by.b;
  for (int64_t depth = 0; depth < by.k; ++depth, a += by.a.depth_stride, b += by.b_stride) {
    Floats right[vectors];
#pragma GCC unroll 4
    for (int vector = 0; vector < vectors; ++vector) {
      right[vector] = *reinterpret_cast<const Floats*>(b + vector * lanes);
    }
#pragma GCC unroll 12
    for (int row = 0; row < rows; ++row) {
      const float left = a[row * by.a.row_stride];
#pragma GCC unroll 4
      for (int vector = 0; vector < vectors; ++vector) sum[row][vector] += left * right[vector];
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (int vector = 0; vector < vectors; ++vector) {
      *reinterpret_cast<Floats*>(by.c + row * by.c_stride + vector * lanes) = sum[row][vector];
    }
  }
}

// Any number of rows, of this many columns.
template <int lanes, int vectors>
SHIFTRON_INLINE void panel(int64_t m, Operands by) {
  const auto step = [&](int rows) {
    by.a.data += rows * by.a.row_stride;
    by.c += rows * by.c_stride;
  };
  if constexpr (vectors == 1) {  // more rows hide the latency of its additions
    for (; m >= 2 * kRows; m -= 2 * kRows) {
      block<lanes, 2 * kRows, vectors>(by);
      step(2 * kRows);
    }
  }
  for (; m >= kRows; m -= kRows) {
    block<lanes, kRows, vectors>(by);
    step(kRows);
  }
  switch (m) {
    case 5:
      return block<lanes, 5, vectors>(by);
    case 4:
      return block<lanes, 4, vectors>(by);
    case 3:
      return block<lanes, 3, vectors>(by);
    case 2:
      return block<lanes, 2, vectors>(by);
    case 1:
      return block<lanes, 1, vectors>(by);
    default:
      return;
  }
}

template <int lanes, int vectors>
SHIFTRON_INLINE void multiply(int64_t m, int64_t n, const Operands& all) {
  const int64_t at_once = kPanelFloats / std::clamp<int64_t>(n, 1, vectors * lanes);
  const int64_t depths = std::max<int64_t>(1, (all.k + at_once - 1) / at_once);
  for (int64_t depth = 0; depth < depths; ++depth) {
    const int64_t first = all.k * depth / depths;
    Operands by = all;
    by.k = all.k * (depth + 1) / depths - first;
    by.a.data += first * all.a.depth_stride;
    by.b += first * all.b_stride;
    by.keep = all.keep || depth > 0;
    int64_t columns = n;
    const auto take = [&](int64_t taken) {
      by.b += taken;
      by.c += taken;
      columns -= taken;
    };
    for (; columns >= vectors * lanes; take(vectors * lanes)) panel<lanes, vectors>(m, by);
    for (; columns >= lanes; take(lanes)) panel<lanes, 1>(m, by);
    for (; columns > 0; take(1)) panel<1, 1>(m, by);
  }
}

// Interleaves the lanes of a and b: the first halves go to `low`, the second ones to `high`.
template <typename Floats, int... lane>
SHIFTRON_INLINE void interleave(const Floats& a, const Floats& b, Floats& low, Floats& high,
                                std::integer_sequence<int, lane...>) {
  constexpr int lanes = sizeof...(lane);
  low = __builtin_shufflevector(a, b, (lane / 2 + lane % 2 * lanes)...);
  high = __builtin_shufflevector(a, b, ((lane + lanes) / 2 + lane % 2 * lanes)...);
}

// to = fromᵀ [lanes, lanes]. Interleaving the upper half of the rows with the lower one rotates the bits of an
// element's row and column by one place. After as many rounds as a row number has bits, row and column have changed
// places.
template <int lanes>
SHIFTRON_INLINE void transpose_square(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  using Floats = typename Vector<lanes>::Type;
  constexpr auto kEach = std::make_integer_sequence<int, lanes>();
  Floats x[lanes], y[lanes];
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) x[i] = *reinterpret_cast<const Floats*>(from + i * from_stride);
#pragma GCC unroll 4
  for (int stage = 1; stage < lanes; stage *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < lanes / 2; ++i) {
      interleave(x[i], x[i + lanes / 2], y[2 * i], y[2 * i + 1], kEach);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) x[i] = y[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) *reinterpret_cast<Floats*>(to + i * to_stride) = x[i];
}

template <int lanes, typename T>
SHIFTRON_INLINE void transpose(const T* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                               int64_t to_stride) {
  float converted[lanes * lanes];
  for (int64_t row = 0; row < rows; row += lanes) {
    const int64_t height = std::min<int64_t>(lanes, rows - row);
    for (int64_t column = 0; column < columns; column += lanes) {
      const int64_t width = std::min<int64_t>(lanes, columns - column);
      const T* block = from + row * from_stride + column;
      float* turned = to + column * to_stride + row;
      if (height < lanes || width < lanes) {
        for (int64_t i = 0; i < width; ++i) {
          for (int64_t j = 0; j < height; ++j) turned[i * to_stride + j] = to_accumulate(block[j * from_stride + i]);
        }
      } else if constexpr (std::is_same_v<T, float>) {
        transpose_square<lanes>(block, from_stride, turned, to_stride);
      } else {
        for (int i = 0; i < lanes; ++i) {
#pragma omp simd
          for (int j = 0; j < lanes; ++j) converted[i * lanes + j] = to_accumulate(block[i * from_stride + j]);
        }
        transpose_square<lanes>(converted, lanes, turned, to_stride);
      }
    }
  }
}

// One version for each instruction set that SHIFTRON_CLONES names, each with its own vector length.
#define SHIFTRON_BY_LENGTH(target, lanes, vectors)                                                                \
  target void multiply_here(int64_t m, int64_t n, const Operands& by) {                                           \
    multiply<lanes, vectors>(m, n, by);                                                                           \
  }                                                                                                               \
  target int64_t columns_here() {                                                                                 \
    return int64_t{lanes} * vectors;                                                                              \
  }                                                                                                               \
  target void transpose_here(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,    \
                             int64_t to_stride) {                                                                 \
    transpose<lanes>(from, from_stride, rows, columns, to, to_stride);                                            \
  }                                                                                                               \
  target void transpose_here(const bfloat16* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, \
                             int64_t to_stride) {                                                                 \
    transpose<lanes>(from, from_stride, rows, columns, to, to_stride);                                            \
  }
#if defined(SHIFTRON_CLONED)
SHIFTRON_BY_LENGTH([[gnu::target("default")]], 4, 2)
SHIFTRON_BY_LENGTH([[gnu::target("arch=x86-64-v3")]], 8, 2)
SHIFTRON_BY_LENGTH([[gnu::target("arch=x86-64-v4")]], 16, 4)
#elif defined(__AVX512F__)
SHIFTRON_BY_LENGTH(, 16, 4)
#elif defined(__AVX__)
SHIFTRON_BY_LENGTH(, 8, 2)
#else
SHIFTRON_BY_LENGTH(, 4, 2)
#endif
#undef SHIFTRON_BY_LENGTH

}  // namespace

void tile_product_float32(int64_t m, int64_t n, int64_t k, const LeftFloats& a, const float* b, int64_t b_stride,
                          bool keep, float* c, int64_t c_stride, LinesAhead* ahead) {
  multiply_here(m, n, {k, a, b, b_stride, keep, c, c_stride, ahead});
}

int64_t float32_tile_columns() {
  return columns_here();
}

void transpose_float32(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                       int64_t to_stride) {
  transpose_here(from, from_stride, rows, columns, to, to_stride);
}
void transpose_float32(const bfloat16* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                       int64_t to_stride) {
  transpose_here(from, from_stride, rows, columns, to, to_stride);
}

}  // namespace shiftron::fast
