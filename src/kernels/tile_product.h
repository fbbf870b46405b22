// Small products on one thread, with operands in cache; attention's tiles and large products are built from them. In
// bfloat16 the right operand is stored as pairs of its rows: element (k, n) is half k % 2 of word [k / 2][n], as
// vdpbf16ps and tdpbf16ps read it.
#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

// For functions with explicit bfloat16 vectors; they run only where a tile_body(...) exists.
#if defined(__x86_64__)
#define SHIFTRON_BFLOAT16_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#endif

namespace shiftron::fast {

class LinesAhead;

// A left operand [m, 2·pairs] as words, each with two neighbours of a row.
struct LeftTile {
  const void* words;
  int64_t row_stride, pair_stride;  // in words
};
inline LeftTile rows_of(const bfloat16* a, int64_t stride) {
  return {a, stride / 2, 1};
}  // stride must be even

// An implementation of the products.
struct TileBody {
  // c [m, n] float32 = a · b + keep · c. b: rows of words, b_stride apart. Reads and writes nothing outside the given
  // extents. The sum of an element depends neither on other elements nor on m and n. ahead: lines that it may prefetch
  // meanwhile.
  void product(int64_t m, int64_t n, int64_t pairs, const LeftTile& a, const uint32_t* b, int64_t b_stride, bool keep,
               float* c, int64_t c_stride, LinesAhead* ahead = nullptr) const {
    run(m, n, pairs, a, b, b_stride, keep, c, c_stride, ahead);
  }
  void (*run)(int64_t m, int64_t n, int64_t pairs, const LeftTile& a, const uint32_t* b, int64_t b_stride, bool keep,
              float* c, int64_t c_stride, LinesAhead* ahead);
  bool reads_rows;  // the pairs of its left operand must be adjacent
};
// Null if the processor lacks the instructions, or if `by` does not use tiles.
const TileBody* tile_body(ProductsBy by);
// For tiles and tile_loops only (tile_product_matrix_cpu.cpp).
const TileBody* matrix_body(ProductsBy by);
// The instructions, whether or not this processor has them; null on architectures without them.
const TileBody* matrix_instructions();

// The left operand aᵀ of a [rows, m], stored in `room` in the body's layout; a last row without a partner is paired
// with zeros.
LeftTile pack_transposed(const TileBody& body, const bfloat16* a, int64_t stride, int64_t rows, int64_t m,
                         uint32_t* room);
// Words of that room. If rows were a power of two words long, all would map to the same cache set.
constexpr int64_t kRowPadding = 16;
constexpr int64_t packed_words(int64_t rows, int64_t m) {
  return m * ((rows + 1) / 2 + kRowPadding);
}

// to [columns, rows] = from [rows, columns], of 32-bit words. Runs where a tile_body(...) exists.
void transpose_words(const void* from, int64_t from_stride, int64_t rows, int64_t columns, void* to, int64_t to_stride);

// to [pairs of rows][columns], pairs to_stride words apart, from rows `stride` apart; a last row without a partner is
// paired with zeros. Runs on every processor.
void pair_rows(const bfloat16* from, int64_t stride, int64_t rows, int64_t columns, uint32_t* to, int64_t to_stride);

inline constexpr int kFloat32TileRows = 6;  // of sums, at a time

// A left operand in float32, read in place: element (m, k) is at m · row_stride + k · depth_stride.
struct LeftFloats {
  const float* data;
  int64_t row_stride, depth_stride;
};
// c [m, n] = a [m, k] · b [k, n] + keep · c in float32; rows of b are b_stride apart. Reads and writes nothing outside
// the given extents. The sum of an element depends neither on other elements nor on m and n. ahead: lines to prefetch
// meanwhile. Runs on every processor.
void tile_product_float32(int64_t m, int64_t n, int64_t k, const LeftFloats& a, const float* b, int64_t b_stride,
                          bool keep, float* c, int64_t c_stride, LinesAhead* ahead = nullptr);
// The width of a right operand for which it is fastest: one panel of vectors that stay in registers.
int64_t float32_tile_columns();
// to [columns, rows] float32 = from [rows, columns]. Runs on every processor.
void transpose_float32(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                       int64_t to_stride);
void transpose_float32(const bfloat16* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                       int64_t to_stride);

}  // namespace shiftron::fast
