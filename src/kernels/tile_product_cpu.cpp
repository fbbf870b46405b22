// Implementations of small products. Vectors: vdpbf16ps on 6 rows by 4 vectors; 24 sums, 4 words of b and one of a fit
// into the 32 registers. Tiles: tile_product_matrix_cpu.cpp.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/check.h"
#include "kernels/cpu_loops.h"
#include "kernels/tile_product.h"

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false warning of g++ 12 in its own header
#endif

namespace shiftron::fast {

SHIFTRON_CLONES void pair_rows(const bfloat16* from, int64_t stride, int64_t rows, int64_t columns, uint32_t* to,
                               int64_t to_stride) {
  for (int64_t row = 0; row < rows; row += 2, from += 2 * stride, to += to_stride) {
    if (row + 1 == rows) {
      for (int64_t i = 0; i < columns; ++i) to[i] = from[i].bits;
      return;
    }
    const bfloat16* odd = from + stride;
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) to[i] = from[i].bits | static_cast<uint32_t>(odd[i].bits) << 16;
  }
}

#if defined(__x86_64__)
namespace {

constexpr int kRows = 6;
constexpr int kVectors = 4;
constexpr int kLanes = 16;

struct Operands {
  int64_t pairs;
  const int32_t* a;
  int64_t row_stride, pair_stride;
  const uint32_t* b;
  int64_t b_stride;
  bool keep;
  float* c;
  int64_t c_stride;
};

constexpr __mmask16 mask_of(int64_t lanes) {
  return static_cast<__mmask16>((1u << lanes) - 1u);
}

// The last of the vectors has `last` lanes.
template <int rows, int vectors>
SHIFTRON_BFLOAT16_TARGET void block(const Operands& by, int64_t last) {
  const auto lanes = [last](int vector) { return vector + 1 < vectors ? mask_of(kLanes) : mask_of(last); };
  __m512 sum[rows][vectors];
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (int vector = 0; vector < vectors; ++vector) {
      sum[row][vector] = by.keep ? _mm512_maskz_loadu_ps(lanes(vector), by.c + row * by.c_stride + vector * kLanes)
                                 : _mm512_setzero_ps();
    }
  }
  const int32_t* a = by.a;
  const uint32_t* b = by.b;
  for (int64_t pair = 0; pair < by.pairs; ++pair, a += by.pair_stride, b += by.b_stride) {
    __m512bh words[vectors];
#pragma GCC unroll 4
    for (int vector = 0; vector < vectors; ++vector) {
      words[vector] = (__m512bh)_mm512_maskz_loadu_epi32(lanes(vector), b + vector * kLanes);
    }
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
      int32_t two;
      std::memcpy(&two, a + row * by.row_stride, sizeof two);
      const __m512bh both = (__m512bh)_mm512_set1_epi32(two);
#pragma GCC unroll 4
      for (int vector = 0; vector < vectors; ++vector) {
        sum[row][vector] = _mm512_dpbf16_ps(sum[row][vector], both, words[vector]);
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (int vector = 0; vector < vectors; ++vector) {
      _mm512_mask_storeu_ps(by.c + row * by.c_stride + vector * kLanes, lanes(vector), sum[row][vector]);
    }
  }
}

using Block = void (*)(const Operands&, int64_t);
template <int rows>
constexpr std::array<Block, kVectors> kBlocksOfRows = {block<rows, 1>, block<rows, 2>, block<rows, 3>, block<rows, 4>};
constexpr std::array<std::array<Block, kVectors>, kRows> kBlocks = {
    kBlocksOfRows<1>, kBlocksOfRows<2>, kBlocksOfRows<3>, kBlocksOfRows<4>, kBlocksOfRows<5>, kBlocksOfRows<6>};

// Sixteen rows of sixteen words: interleaves words, then pairs of words, then exchanges quarters.
SHIFTRON_BFLOAT16_TARGET void transpose_block(const int32_t* from, int64_t from_stride, int64_t rows, int64_t columns,
                                              int32_t* to, int64_t to_stride) {
  __m512i x[kLanes], y[kLanes];
  const __mmask16 read = mask_of(columns);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    x[i] = i < rows ? _mm512_maskz_loadu_epi32(read, from + i * from_stride) : _mm512_setzero_si512();
  }
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 4) {  // x[i + j] holds column 4·quarter + j of rows i to i + 3, in each quarter
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i low = _mm512_shuffle_i32x4(x[j], x[j + 4], 0x88), high = _mm512_shuffle_i32x4(x[j], x[j + 4], 0xdd);
    const __m512i low_2 = _mm512_shuffle_i32x4(x[j + 8], x[j + 12], 0x88);
    const __m512i high_2 = _mm512_shuffle_i32x4(x[j + 8], x[j + 12], 0xdd);
    y[j] = _mm512_shuffle_i32x4(low, low_2, 0x88);
    y[j + 8] = _mm512_shuffle_i32x4(low, low_2, 0xdd);
    y[j + 4] = _mm512_shuffle_i32x4(high, high_2, 0x88);
    y[j + 12] = _mm512_shuffle_i32x4(high, high_2, 0xdd);
  }
  const __mmask16 written = mask_of(rows);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i < columns) _mm512_mask_storeu_epi32(to + i * to_stride, written, y[i]);
  }
}

// Prefetches nothing, because no processor that uses this body was available to measure it.
void vector_product(int64_t m, int64_t n, int64_t pairs, const LeftTile& a, const uint32_t* b, int64_t b_stride,
                    bool keep, float* c, int64_t c_stride, LinesAhead* /*ahead*/) {
  const auto* words = static_cast<const int32_t*>(a.words);
  for (int64_t column = 0; column < n; column += kVectors * kLanes) {
    const int64_t columns = std::min<int64_t>(n - column, kVectors * kLanes);
    const int64_t vectors = (columns + kLanes - 1) / kLanes;
    for (int64_t row = 0; row < m; row += kRows) {
      const int64_t rows = std::min<int64_t>(m - row, kRows);
      kBlocks[static_cast<size_t>(rows - 1)][static_cast<size_t>(vectors - 1)](
          {pairs, words + row * a.row_stride, a.row_stride, a.pair_stride, b + column, b_stride, keep,
           c + row * c_stride + column, c_stride},
          columns - (vectors - 1) * kLanes);
    }
  }
}

constexpr TileBody kVectorBody = {vector_product, false};

bool has_vectors() {
#if defined(SHIFTRON_ONE_INSTRUCTION_SET) && !defined(__AVX512F__)
  return false;
#else
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512dq");
#endif
}

}  // namespace

const TileBody* tile_body(ProductsBy by) {
  static const bool vectors = has_vectors();  // the packing for the other bodies needs them too
  if (!vectors) return nullptr;
  if (by == ProductsBy::vectors) return &kVectorBody;
  return matrix_body(by);
}

void transpose_words(const void* from, int64_t from_stride, int64_t rows, int64_t columns, void* to,
                     int64_t to_stride) {
  const auto* source = static_cast<const int32_t*>(from);
  auto* target = static_cast<int32_t*>(to);
  for (int64_t row = 0; row < rows; row += kLanes) {
    for (int64_t column = 0; column < columns; column += kLanes) {
      transpose_block(source + row * from_stride + column, from_stride, std::min<int64_t>(kLanes, rows - row),
                      std::min<int64_t>(kLanes, columns - column), target + column * to_stride + row, to_stride);
    }
  }
}

#else

const TileBody* tile_body(ProductsBy) {
  return nullptr;
}
void transpose_words(const void*, int64_t, int64_t, int64_t, void*, int64_t) {
  CHECK(false, "no bfloat16 vectors on this processor");
}

#endif

LeftTile pack_transposed(const TileBody& body, const bfloat16* a, int64_t stride, int64_t rows, int64_t m,
                         uint32_t* room) {
  const int64_t pairs = (rows + 1) / 2;
  if (!body.reads_rows) {
    pair_rows(a, stride, rows, m, room, m);
    return {room, 1, m};
  }
  constexpr int64_t kPairs = 16, kColumns = 64;
  uint32_t paired[kPairs * kColumns];
  const int64_t row_words = pairs + kRowPadding;
  for (int64_t pair = 0; pair < pairs; pair += kPairs) {
    for (int64_t column = 0; column < m; column += kColumns) {
      const int64_t columns = std::min(kColumns, m - column);
      pair_rows(a + 2 * pair * stride + column, stride, std::min(2 * kPairs, rows - 2 * pair), columns, paired,
                kColumns);
      transpose_words(paired, kColumns, std::min(kPairs, pairs - pair), columns, room + column * row_words + pair,
                      row_words);
    }
  }
  return {room, row_words, 1};
}

}  // namespace shiftron::fast
