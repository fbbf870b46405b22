// Layout of the operands of a large product as tiles of a matrix unit, and writing its sums to the result. Runs where a
// tile_body(...) exists.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/matrix_product.h"

namespace shiftron::fast {

// All of b [k, n] as right operand: for each 32 columns and each 32 of k, two tiles [16 pairs][16 columns]. Padded with
// zeros.
void pack_right_panels(int threads, const Matrix& b, int64_t k, int64_t n, uint32_t* to);

// Rows [row, row + rows) and columns [first, first + depth) of a as left operand: for each 32 rows and each 32 columns,
// two tiles [16 rows][16 pairs]. Each 32 rows have room for block_steps times 32 columns. Padded with zeros.
void pack_left_blocks(const Matrix& a, int64_t row, int64_t rows, int64_t first, int64_t depth, uint32_t* to,
                      int64_t block_steps);

// The result c, to which blocks of sums [32, 32] float32 are written.
struct Result {
  void* c;
  DType dtype;
  int64_t stride;
  bool keep;  // add to c; only for float32

  struct Block {
    const float* sums = nullptr;
    int64_t rows = 0, columns = 0;  // no rows: nothing to write
    char* to = nullptr;
  };
  // The block at this place; n: columns of c.
  Block block(const float* sums, int64_t row, int64_t rows, int64_t column, int64_t n) const {
    return {sums, rows, std::min(MatrixProductCut::kBlock, n - column),
            static_cast<char*>(c) + (row * stride + column) * size_of(dtype)};
  }
  // Rows [from, to) of two blocks: writes those of the block already summed, and prefetches c for the next block.
  void turn(const Block& summed, const Block& next, int64_t from, int64_t to) const;
};

}  // namespace shiftron::fast
