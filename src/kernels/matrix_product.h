// Large products of bfloat16 by a matrix unit (matrix_product_cpu.cpp): how they are cut, and the room that they need.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"

namespace shiftron::fast {

// c [m, n] = a [m, k] · b [k, n]. Both operands are packed as the unit's tiles: b whole into panels of columns, a by
// each thread in blocks of rows. The sums of a block of 32 × 32 elements stay in the unit for `depth` of k, for which
// one operand lies in the first-level cache and the other one passes; a thread's memory fits a second-level cache of
// 2 MiB.
struct MatrixProductCut {
  static constexpr int64_t kTile = 16;                      // rows of a tile, and words (pairs of elements) of a row
  static constexpr int64_t kBlock = 2 * kTile;              // of c either way; and of k what one row of a tile holds
  static constexpr int64_t kStepWords = 2 * kTile * kTile;  // of either operand for one block and kBlock of k
  static constexpr int64_t kBlockSums = kBlock * kBlock;

  MatrixProductCut(int threads, int64_t m, int64_t n, int64_t k);

  // The depth with this number begins at this step.
  int64_t first_step(int64_t depth) const { return depth * steps / depths; }
  // The group of panels with this number begins at this panel.
  int64_t first_panel(int64_t group) const { return group * panels / groups; }
  // The task of rows with this number begins at this row of a. Where a task's rows are packed at once, tasks are of
  // equal size to a block, so that threads end together.
  int64_t first_row(int64_t task) const {
    return order == Order::parts_of_rows ? row_blocks * task / row_tasks * kBlock : task * task_rows;
  }
  int64_t right_words() const { return panels * steps * kStepWords; }
  int64_t left_words() const;  // of a thread
  int64_t sums() const;        // floats of a thread
  int64_t bytes() const;       // of the whole room

  // strips: a block of rows in its whole depth stays in the first-level cache, so that c is written row by row.
  // Otherwise a panel does: rows are packed in their whole depth, or, where that is too much, part by part of it.
  enum class Order { strips, whole_rows, parts_of_rows };

  int64_t row_blocks, panels, steps, depths;  // blocks of m, n, and k; parts of the last that are summed at once
  Order order;
  int64_t rows;                          // of a that are packed at once
  int64_t task_rows, row_tasks, groups;  // a task: so many rows at most by one group of panels
  int threads;
};

// By the unit (tiles) or its plain loops (tile_loops). False, and nothing done, by anything else, where this processor
// has none, and where b is transposed and pairs along k are no words of it. The sum of an element depends on k alone,
// not on threads. room: MatrixProductCut(threads, m, n, k).bytes().
bool multiply_by_matrix_unit(ProductsBy by, const MatrixProduct& product, const Tensor& room);

}  // namespace shiftron::fast
