// Small bfloat16 products on one thread, on operands in cache: what attention's tiles are made of. The right operand
// lies in pairs of its rows: element (k, n) is half k % 2 of word [k / 2][n], as vdpbf16ps reads it.
#pragma once

#include <cstdint>

#include "core/tensor.h"

// On functions that use bfloat16 vectors by name; they run only where tile_products_available().
#if defined(__x86_64__)
#define SHIFTRON_BFLOAT16_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#endif

namespace shiftron::fast {

// True where the processor multiplies bfloat16 vectors; nothing below may be called otherwise.
bool tile_products_available();

// A left operand [m, 2·pairs] as words: two neighbours of a row each.
struct LeftTile {
  const void* words;
  int64_t row_stride, pair_stride;  // in words
};
inline LeftTile rows_of(const bfloat16* a, int64_t stride) {
  return {a, stride / 2, 1};
}  // stride even
inline LeftTile transpose_of(const uint32_t* pairs, int64_t stride) {
  return {pairs, 1, stride};
}  // [pairs][m]

// c [m, n] float32 = a · b + keep · c. b: rows of words b_stride apart. Reads and writes nothing outside of the stated
// extents.
void tile_product(int64_t m, int64_t n, int64_t pairs, const LeftTile& a, const uint32_t* b, int64_t b_stride,
                  bool keep, float* c, int64_t c_stride);

// to [columns, rows] = from [rows, columns], of 32-bit words.
void transpose_words(const void* from, int64_t from_stride, int64_t rows, int64_t columns, void* to, int64_t to_stride);

// to [pairs of rows][columns], pairs to_stride words apart, from rows `stride` apart; a last row without a partner is
// paired with zeros. Runs on every processor.
void pair_rows(const bfloat16* from, int64_t stride, int64_t rows, int64_t columns, uint32_t* to, int64_t to_stride);

}  // namespace shiftron::fast
