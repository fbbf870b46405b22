#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "kernels/cpu_loops.h"
#include "kernels/matrix_product.h"
#include "kernels/tile_panels.h"
#include "kernels/vectors_bfloat16.h"

#if defined(__x86_64__)
namespace shiftron::fast {
namespace {

using Cut = MatrixProductCut;
constexpr int64_t kTile = Cut::kTile, kBlock = Cut::kBlock, kTileWords = kTile * kTile;

// Sixteen pairs of rows of at most 32 columns each, as words: to [2][16 pairs][16 columns].
SHIFTRON_BFLOAT16_TARGET void pair_block(const bfloat16* from, int64_t stride, int64_t rows, int64_t columns,
                                         uint32_t* to) {
  constexpr const auto& kOrder = kInterleaved<kBlock>;  // alternates between the two rows
  const __m512i low = _mm512_loadu_si512(kOrder.data()), high = _mm512_loadu_si512(kOrder.data() + kBlock);
  const __mmask32 read = first_halves(columns);
  for (int64_t pair = 0; pair < kTile; ++pair, from += 2 * stride, to += kTile) {
    const int64_t left = rows - 2 * pair;
    const __m512i even = left > 0 ? _mm512_maskz_loadu_epi16(read, from) : _mm512_setzero_si512();
    const __m512i odd = left > 1 ? _mm512_maskz_loadu_epi16(read, from + stride) : _mm512_setzero_si512();
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_storeu_si512(to + kTileWords, _mm512_permutex2var_epi16(even, high, odd));
  }
}

// Two tiles of b's transpose: at most 32 rows of at most 32 columns each.
void transpose_rows(const bfloat16* from, int64_t stride, int64_t rows, int64_t columns, uint32_t* to) {
  if (rows < kBlock || columns < kBlock) std::memset(to, 0, 2 * kTileWords * sizeof(uint32_t));
  for (int64_t half = 0; half * kTile < rows; ++half) {
    transpose_words(from + half * kTile * stride, stride / 2, std::min(kTile, rows - half * kTile), columns / 2,
                    to + half * kTileWords, kTile);
  }
}

// Sixteen words of each of at most 32 rows.
SHIFTRON_BFLOAT16_TARGET void copy_rows(const bfloat16* from, int64_t stride, int64_t rows, int64_t columns,
                                        uint32_t* to, int64_t block_words) {
  for (int64_t row = 0; row < kBlock; ++row) {
    const bfloat16* source = from + row * stride;
    uint32_t* target = to + row * kTile;
    const int64_t own = row < rows ? columns : 0;
    int64_t column = 0;
    for (; column + kBlock <= own; column += kBlock, target += block_words) {
      _mm512_storeu_si512(target, _mm512_loadu_si512(source + column));
    }
    for (; column < columns; column += kBlock, target += block_words) {
      const __mmask32 read = first_halves(own - column);
      _mm512_storeu_si512(target, read == 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(read, source + column));
    }
  }
}

// Sixteen words of each of 32 rows of aᵀ, from rows of a.
void transpose_left(const bfloat16* from, int64_t stride, int64_t rows, int64_t columns, uint32_t* to) {
  alignas(64) uint32_t paired[2 * kTileWords];
  pair_block(from, stride, rows, columns, paired);
  for (const int64_t tile : {0, 1}) {
    transpose_words(paired + tile * kTileWords, kTile, kTile, kTile, to + tile * kTileWords, kTile);
  }
}

SHIFTRON_VECTOR_INLINE void write_floats(const float* sums, int64_t columns, bool keep, float* to) {
  const __mmask16 these = first_lanes(columns);
  const __m512 before = keep ? _mm512_maskz_loadu_ps(these, to) : _mm512_setzero_ps();
  _mm512_mask_storeu_ps(to, these, _mm512_add_ps(before, _mm512_loadu_ps(sums)));
}

SHIFTRON_BFLOAT16_TARGET void write_rows(const float* sums, int64_t rows, int64_t columns, bool keep, float* to,
                                         int64_t stride) {
  for (int64_t row = 0; row < rows; ++row, sums += kBlock, to += stride) {
    write_floats(sums, columns, keep, to);
    if (columns > kTile) write_floats(sums + kTile, columns - kTile, keep, to + kTile);
  }
}

SHIFTRON_BFLOAT16_TARGET void write_rows(const float* sums, int64_t rows, int64_t columns, bfloat16* to,
                                         int64_t stride) {
  const __mmask32 these = first_halves(columns);
  for (int64_t row = 0; row < rows; ++row, sums += kBlock, to += stride) {
    const __m512i both = rounded(_mm512_loadu_ps(sums), _mm512_loadu_ps(sums + kTile));
    if (columns == kBlock)
      _mm512_storeu_si512(to, both);
    else
      _mm512_mask_storeu_epi16(to, these, both);
  }
}

}  // namespace

void pack_right_panels(int threads, const Matrix& b, int64_t k, int64_t n, uint32_t* to) {
  const int64_t panels = (n + kBlock - 1) / kBlock, steps = (k + kBlock - 1) / kBlock;
  // A task reads whole rows of memory: those of a panel if b is transposed, otherwise those of a step.
  parallel_for(threads, b.transposed ? panels : steps, [&](int64_t task) {
    for (int64_t i = 0; i < (b.transposed ? steps : panels); ++i) {
      const int64_t panel = b.transposed ? task : i, step = b.transposed ? i : task;
      const int64_t column = panel * kBlock, row = step * kBlock;
      const int64_t columns = std::min(kBlock, n - column), rows = std::min(kBlock, k - row);
      uint32_t* tiles = to + (panel * steps + step) * Cut::kStepWords;
      if (b.transposed)
        transpose_rows(b.element<bfloat16>(row, column), b.stride, columns, rows, tiles);
      else
        pair_block(b.element<bfloat16>(row, column), b.stride, rows, columns, tiles);
    }
  });
}

void pack_left_blocks(const Matrix& a, int64_t row, int64_t rows, int64_t first, int64_t depth, uint32_t* to,
                      int64_t block_steps) {
  const int64_t blocks = (rows + kBlock - 1) / kBlock, steps = (depth + kBlock - 1) / kBlock;
  const auto rows_of = [&](int64_t block) { return std::min(kBlock, rows - block * kBlock); };
  if (!a.transposed) {
    for (int64_t block = 0; block < blocks; ++block) {
      copy_rows(a.element<bfloat16>(row + block * kBlock, first), a.stride, rows_of(block), depth,
                to + block * block_steps * Cut::kStepWords, Cut::kStepWords);
    }
    return;
  }
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = first + step * kBlock, columns = std::min(kBlock, first + depth - at);
    for (int64_t block = 0; block < blocks; ++block) {
      transpose_left(a.element<bfloat16>(row + block * kBlock, at), a.stride, columns, rows_of(block),
                     to + (block * block_steps + step) * Cut::kStepWords);
    }
  }
}

void Result::turn(const Block& summed, const Block& next, int64_t from, int64_t to) const {
  const int64_t written = std::min(to, summed.rows) - from, prepared = std::min(to, next.rows) - from;
  const int64_t element = size_of(dtype);
  if (written > 0) {
    const float* sums = summed.sums + from * kBlock;
    char* out = summed.to + from * stride * element;
    if (dtype == DType::bfloat16)
      write_rows(sums, written, summed.columns, reinterpret_cast<bfloat16*>(out), stride);
    else
      write_rows(sums, written, summed.columns, keep, reinterpret_cast<float*>(out), stride);
  }
  if (prepared <= 0) return;
  prefetch_rows_to_write(next.to + from * stride * element, prepared, next.columns * element, stride * element);
}

}  // namespace shiftron::fast

#else

namespace shiftron::fast {

void pack_right_panels(int, const Matrix&, int64_t, int64_t, uint32_t*) {
  CHECK(false, "no bfloat16 vectors on this processor");
}
void pack_left_blocks(const Matrix&, int64_t, int64_t, int64_t, int64_t, uint32_t*, int64_t) {
  CHECK(false, "no bfloat16 vectors on this processor");
}
void Result::turn(const Block&, const Block&, int64_t, int64_t) const {
  CHECK(false, "no bfloat16 vectors on this processor");
}

}  // namespace shiftron::fast

#endif
