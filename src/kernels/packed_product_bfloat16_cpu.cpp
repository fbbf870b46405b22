// The right operand is packed once into panels of pairs of rows; rows of the left one are read as they lie.
#include <algorithm>

#include "kernels/cpu_loops.h"
#include "kernels/packed_product.h"

namespace shiftron::fast {
namespace {

using Sizes = PackedProductSizes;

const bfloat16* element(const Matrix& of, int64_t row, int64_t column) {
  return static_cast<const bfloat16*>(of.data) + row * of.stride + column;
}

bool in_words(const Matrix& matrix) {
  return matrix.stride % 2 == 0 && reinterpret_cast<uintptr_t>(matrix.data) % alignof(uint32_t) == 0;
}

// Columns [column, column + width) of b, of which a transposed one's rows hold the words of pairs already.
void pack_panel(const Matrix& b, int64_t k, int64_t column, int64_t width, uint32_t* panel) {
  if (b.transposed)
    transpose_words(element(b, column, 0), b.stride / 2, width, k / 2, panel, Sizes::kColumns);
  else
    pair_rows(element(b, 0, column), b.stride, k, width, panel, Sizes::kColumns);
}

}  // namespace

bool packed_product(int threads, const TileBody& body, int64_t m, int64_t n, int64_t k, const Matrix& a,
                    const Matrix& b, bool keep, void* c, DType c_dtype, int64_t c_stride, void* room) {
  if (a.transposed || k % 2 != 0 || !in_words(a) || (b.transposed && !in_words(b))) return false;
  const Sizes sizes(n, k);
  auto* panels = static_cast<uint32_t*>(room);
  const auto width_of = [&](int64_t panel) { return std::min(Sizes::kColumns, n - panel * Sizes::kColumns); };
  parallel_for(threads, sizes.panels, [&](int64_t panel) {
    pack_panel(b, k, panel * Sizes::kColumns, width_of(panel), panels + panel * sizes.panel_words());
  });
  // Several tasks a thread, also of few rows.
  const int64_t row_blocks = (m + Sizes::kRows - 1) / Sizes::kRows;
  const int64_t groups = std::clamp<int64_t>(4 * threads / row_blocks, 1, sizes.panels);
  const auto nothing = [](int) { return 0; };
  parallel_dynamic(threads, row_blocks * groups, nothing, [&](int64_t task, int) {
    const int64_t row = task / groups * Sizes::kRows, height = std::min(Sizes::kRows, m - row);
    const int64_t group = task % groups;
    const LeftTile left = rows_of(element(a, row, 0), a.stride);
    for (int64_t panel = group * sizes.panels / groups; panel < (group + 1) * sizes.panels / groups; ++panel) {
      const uint32_t* right = panels + panel * sizes.panel_words();
      const int64_t at = row * c_stride + panel * Sizes::kColumns, width = width_of(panel);
      if (c_dtype == DType::float32) {
        body.product(height, width, sizes.pairs, left, right, Sizes::kColumns, keep, static_cast<float*>(c) + at,
                     c_stride);
        continue;
      }
      alignas(64) float sums[Sizes::kRows * Sizes::kColumns];
      body.product(height, width, sizes.pairs, left, right, Sizes::kColumns, false, sums, Sizes::kColumns);
      for (int64_t i = 0; i < height; ++i) {
        narrow(sums + i * Sizes::kColumns, static_cast<bfloat16*>(c) + at + i * c_stride, width);
      }
    }
  });
  return true;
}

}  // namespace shiftron::fast
