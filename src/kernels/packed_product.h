// Large products in bfloat16 by tiles (packed_product_bfloat16_cpu.cpp), and the room that they need.
#pragma once

#include "kernels/matrix.h"
#include "kernels/tile_product.h"

namespace shiftron::fast {

struct PackedProductSizes {
  static constexpr int64_t kColumns = 64;  // of a panel of b
  static constexpr int64_t kRows = 256;    // of a that share a panel while it is near
  PackedProductSizes(int64_t n, int64_t k) : panels((n + kColumns - 1) / kColumns), pairs(k / 2) {}
  int64_t panel_words() const { return pairs * kColumns; }
  int64_t bytes() const { return panels * panel_words() * static_cast<int64_t>(sizeof(uint32_t)); }
  int64_t panels, pairs;
};

// c [m, n] = a [m, k] · b [k, n] + keep · c of bfloat16 matrices, rounded once, to c's type; `room`: Sizes(n,
// k).bytes(). False where a is transposed, or pairs of neighbours are no words. The sum of an element does not depend
// on threads.
bool packed_product(int threads, const TileBody& body, int64_t m, int64_t n, int64_t k, const Matrix& a,
                    const Matrix& b, bool keep, void* c, DType c_dtype, int64_t c_stride, void* room);

}  // namespace shiftron::fast
