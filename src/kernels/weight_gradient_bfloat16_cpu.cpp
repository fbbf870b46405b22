// d_w += d_yᵀ x in bfloat16. Both operands are already stored along the sum, so packing only has to pair rows; a
// library's product does not know that and transposes d_y. x is paired as a whole, d_y is packed block by block.
#include <vector>

#include "kernels/cpu_loops.h"
#include "kernels/matrix.h"
#include "kernels/tile_product.h"
#include "kernels/weight_gradient.h"

namespace shiftron::fast {
using Sizes = WeightGradientSizes;

void weight_gradient_bfloat16(int threads, ConstTensor d_y, ConstTensor x, Tensor d_w, Tensor scratch) {
  const TileBody& body = *tile_body(ProductsBy::vectors);
  const int64_t rows = x.extent(0), in = x.extent(1), out = d_y.extent(1);
  const Sizes sizes(rows, in);
  CHECK(scratch.bytes() >= sizes.bytes(threads), "the weight gradient needs more scratch than ", scratch.bytes());
  const auto rows_at = [&](int64_t depth) { return std::min(rows - depth * Sizes::kDepth, Sizes::kDepth); };
  auto* words = static_cast<uint32_t*>(scratch.raw());
  // [depth block][panel of columns][kDepth / 2][kColumns]
  const auto panel = [&](int64_t depth, int64_t column) {
    return words + (depth * sizes.panels + column) * (Sizes::kDepth / 2) * Sizes::kColumns;
  };
  parallel_for(threads, sizes.depths * sizes.panels, [&](int64_t task) {
    const int64_t depth = task / sizes.panels, column = task % sizes.panels;
    const int64_t width = std::min(Sizes::kColumns, in - column * Sizes::kColumns);
    pair_rows(x.data<bfloat16>() + depth * Sizes::kDepth * x.stride(0) + column * Sizes::kColumns, x.stride(0),
              rows_at(depth), width, panel(depth, column), Sizes::kColumns);
  });
  uint32_t* blocks = panel(sizes.depths, 0);
  const auto block_of = [&](int thread) { return blocks + thread * packed_words(Sizes::kDepth, Sizes::kRows); };
  const int64_t of_task = Sizes::rows_of_task(threads, out);
  parallel_dynamic(threads, (out + of_task - 1) / of_task, block_of, [&](int64_t task, uint32_t* block) {
    const int64_t row = task * of_task, height = std::min(of_task, out - row);
    for (int64_t depth = 0; depth < sizes.depths; ++depth) {
      const LeftTile left = pack_transposed(body, d_y.data<bfloat16>() + depth * Sizes::kDepth * d_y.stride(0) + row,
                                            d_y.stride(0), rows_at(depth), height, block);
      const int64_t pairs = (rows_at(depth) + 1) / 2;
      for (int64_t column = 0; column < sizes.panels; ++column) {
        const int64_t width = std::min(Sizes::kColumns, in - column * Sizes::kColumns);
        body.product(height, width, pairs, left, panel(depth, column), Sizes::kColumns, true,
                     d_w.data<float>() + row * d_w.stride(0) + column * Sizes::kColumns, d_w.stride(0));
      }
    }
  });
}

}  // namespace shiftron::fast
