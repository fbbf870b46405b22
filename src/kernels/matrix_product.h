// Large bfloat16 products by a matrix unit (matrix_product_cpu.cpp): how they are divided, and the scratch that they
// need.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"

namespace shiftron::fast {

// c [m, n] = a [m, k] · b [k, n]. Both operands are packed as the unit's tiles: all of b into panels of columns, a by
// each thread in blocks of rows. k is split into depths. The sums of a block of 32 × 32 elements stay in the unit for
// one depth, while one operand stays in the first-level cache and the other one streams through. A thread's memory fits
// a second-level cache of 2 MiB.
struct MatrixProductCut {
  static constexpr int64_t kTile = 16;                      // rows of a tile, and words (pairs of elements) of a row
  static constexpr int64_t kBlock = 2 * kTile;              // of c either way; and of k what one row of a tile holds
  static constexpr int64_t kStepWords = 2 * kTile * kTile;  // of either operand, for one block and kBlock of k
  static constexpr int64_t kBlockSums = kBlock * kBlock;

  MatrixProductCut(int threads, int64_t m, int64_t n, int64_t k);

  // The first step of this depth.
  int64_t first_step(int64_t depth) const { return depth * steps / depths; }
  // The first panel of this group.
  int64_t first_panel(int64_t group) const { return group * panels / groups; }
  // The first row of a in this task. If the rows of a task are packed all at once, the tasks have equal sizes (to
  // within a block), so that threads finish together.
  int64_t first_row(int64_t task) const {
    return order == Order::parts_of_rows ? row_blocks * task / row_tasks * kBlock : task * task_rows;
  }
  int64_t right_words() const { return panels * steps * kStepWords; }
  int64_t left_words() const;  // of a thread
  int64_t sums() const;        // floats of a thread
  int64_t bytes() const;       // of the whole room

  // strips: a block of rows stays in the first-level cache in its whole depth, so that c is written row by row.
  // Otherwise a panel stays there, and rows are packed in their whole depth or, if that is too large, one part of the
  // depth at a time.
  enum class Order { strips, whole_rows, parts_of_rows };

  int64_t row_blocks, panels, steps, depths;  // blocks of m, n and k; parts of k that are summed at once
  Order order;
  int64_t rows;                          // rows of a that are packed at once
  int64_t task_rows, row_tasks, groups;  // a task: at most this many rows, by one group of panels
  int threads;
};

// By the unit (tiles) or by its plain loops (tile_loops). Returns false and does nothing for other values of `by`, if
// this processor has no unit, or if b is transposed and its pairs along k are not aligned words. The sum of an element
// depends on k alone, not on the thread count. room: MatrixProductCut(threads, m, n, k).bytes().
bool multiply_by_matrix_unit(ProductsBy by, const MatrixProduct& product, const Tensor& room);

}  // namespace shiftron::fast
