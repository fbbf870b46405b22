// The weight gradient in bfloat16 by own tiles of vectors (weight_gradient_bfloat16_cpu.cpp), and the room that it
// needs.
#pragma once

#include "kernels/tile_product.h"

namespace shiftron::fast {

struct WeightGradientSizes {
  static constexpr int64_t kDepth = 2048;  // rows of x whose products are summed before d_w is touched again
  static constexpr int64_t kColumns = 64;  // of x
  // Of d_w, whole blocks of six: they, the block of d_y and a panel of x stay in the second-level cache.
  static constexpr int64_t kRows = 48;
  WeightGradientSizes(int64_t rows, int64_t in)
      : depths((rows + kDepth - 1) / kDepth), panels((in + kColumns - 1) / kColumns) {}
  int64_t bytes(int threads) const {
    return (depths * panels * kColumns * (kDepth / 2) + threads * packed_words(kDepth, kRows)) *
           static_cast<int64_t>(sizeof(uint32_t));
  }
  int64_t depths, panels;
};

// d_w [out, in] float32 += d_yᵀ x, where a tile_body(ProductsBy::vectors) is. The sum of an element does not depend on
// threads.
void weight_gradient_bfloat16(int threads, ConstTensor d_y, ConstTensor x, Tensor d_w, Tensor scratch);

}  // namespace shiftron::fast
