// Arithmetic of boxes: intersection, contiguous runs between two boxes, exact tiling.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "parallel/parameter.h"

namespace shiftron {

Box whole_box(const Shape& shape);
// Nothing if they share no element.
std::optional<Box> intersect(const Box& a, const Box& b);

// Splits `box` along dim 0 into boxes of at most `most` elements, but at least one row, and calls visit(rows, first)
// for each in order; `first` is the index of the first element in the row-major storage of `box`.
template <typename Visit>
void for_each_rows(const Box& box, int64_t most, Visit visit) {
  const int64_t row = box.extent.count() / box.extent[0];
  const int64_t count = std::max<int64_t>(1, most / row);
  for (int64_t begin = 0; begin < box.extent[0]; begin += count) {
    Box rows = box;
    rows.offset[0] += begin;
    rows.extent[0] = std::min(count, box.extent[0] - begin);
    visit(rows, begin * row);
  }
}

// Elements [range) of the row-major storage of `whole` as boxes in order, each contiguous there; at most 2·dims − 1
// boxes.
std::vector<Box> boxes_of_range(const Box& whole, Range range);

// Empty if every element of `shape` lies in exactly one box; otherwise what is wrong. Boxes must lie within the shape.
// O(boxes · 2^dims).
std::string tiling_fault(const Shape& shape, const std::vector<Box>& boxes);

// Calls visit(index in `from`, index in `to`, count) for the longest runs of elements of `common` that are contiguous
// in both boxes, in row-major order; indices count elements of the box's own row-major storage.
template <typename Visit>
void for_each_run(const Box& from, const Box& to, const Box& common, Visit visit) {
  const int dims = common.extent.dims();
  int inner = dims;  // dims [inner, dims) form one run
  int64_t run = 1;
  while (inner > 0) {
    --inner;
    run *= common.extent[inner];
    if (common.extent[inner] != from.extent[inner] || common.extent[inner] != to.extent[inner]) break;
  }
  Shape at = common.offset;
  const auto index_in = [&](const Box& box) {
    int64_t index = 0;
    for (int dim = 0; dim < dims; ++dim) index = index * box.extent[dim] + (at[dim] - box.offset[dim]);
    return index;
  };
  const int64_t runs = run == 0 ? 0 : common.extent.count() / run;
  for (int64_t i = 0; i < runs; ++i) {
    visit(index_in(from), index_in(to), run);
    for (int dim = inner - 1; dim >= 0; --dim) {
      if (++at[dim] < common.offset[dim] + common.extent[dim]) break;
      at[dim] = common.offset[dim];
    }
  }
}

}  // namespace shiftron
