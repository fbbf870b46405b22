// The weight gradient in bfloat16 by our own tiles of vectors (weight_gradient_bfloat16_cpu.cpp), and the scratch that
// it needs.
#pragma once

#include "kernels/tile_product.h"

namespace shiftron::fast {

struct WeightGradientSizes {
  static constexpr int64_t kDepth = 2048;  // rows of x whose products are summed before d_w is read and written again
  static constexpr int64_t kColumns = 64;  // of x
  // Rows of d_w, a multiple of six: they, the block of d_y and a panel of x stay in the second-level cache.
  static constexpr int64_t kRows = 48;
  WeightGradientSizes(int64_t rows, int64_t in)
      : depths((rows + kDepth - 1) / kDepth), panels((in + kColumns - 1) / kColumns) {}
  // Rows of d_w per task. Each task reads all of x, so tasks are smaller only if that lets threads finish a tenth
  // earlier.
  static constexpr int64_t rows_of_task(int threads, int64_t out) {
    constexpr int64_t kBlock = 6, kFewest = 24;
    const auto of_thread = [&](int64_t rows) {
      const int64_t tasks = (out + rows - 1) / rows;
      return (tasks + threads - 1) / threads * rows;
    };
    int64_t best = kRows, most = of_thread(kRows) * 9 / 10;
    for (int64_t rows = kRows - kBlock; rows >= kFewest; rows -= kBlock) {
      if (of_thread(rows) >= most) continue;
      best = rows;
      most = of_thread(rows);
    }
    return best;
  }
  int64_t bytes(int threads) const {
    return (depths * panels * kColumns * (kDepth / 2) + threads * packed_words(kDepth, kRows)) *
           static_cast<int64_t>(sizeof(uint32_t));
  }
  int64_t depths, panels;
};

// d_w [out, in] float32 += d_yᵀ x, where tile_body(ProductsBy::vectors) exists. The sum of an element does not depend
// on the thread count.
void weight_gradient_bfloat16(int threads, ConstTensor d_y, ConstTensor x, Tensor d_w, Tensor scratch);

}  // namespace shiftron::fast
