// Intersection of boxes and the proof that boxes tile a tensor.
#include "checkpoint/boxes.h"

#include <array>
#include <map>

#include "core/check.h"

namespace shiftron {
namespace {

using Corner = std::array<int64_t, kMaxDims>;

// Adds the mixed difference of the box's indicator function: ±1 at its 2^dims corners.
void add_corners(std::map<Corner, int64_t>& sums, const Box& box, int64_t sign) {
  const int dims = box.extent.dims();
  for (int mask = 0; mask < 1 << dims; ++mask) {
    Corner corner{};
    int64_t value = sign;
    for (int dim = 0; dim < dims; ++dim) {
      const bool far = (mask >> dim & 1) != 0;
      corner[dim] = box.offset[dim] + (far ? box.extent[dim] : 0);
      if (far) value = -value;
    }
    const auto entry = sums.try_emplace(corner, 0).first;
    entry->second += value;
    if (entry->second == 0) sums.erase(entry);
  }
}

std::string box_text(const Box& box) {
  return "[" + box.text() + "] of extent " + box.extent.text();
}

// For the message only.
std::string find_overlap(const std::vector<Box>& boxes) {
  constexpr size_t kMostCompared = 4000;
  const size_t count = std::min(boxes.size(), kMostCompared);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (intersect(boxes[i], boxes[j])) return box_text(boxes[j]) + " and " + box_text(boxes[i]) + " overlap";
    }
  }
  return "";
}

// Appends boxes for the elements [range) of `box`, which has extent 1 in every dim before `dim`.
void add_range(const Box& box, int dim, Range range, std::vector<Box>& boxes) {
  if (range.size() == 0) return;
  int64_t row = 1;
  for (int inner = dim + 1; inner < box.extent.dims(); ++inner) row *= box.extent[inner];
  const auto rows = [&](int64_t begin, int64_t end) {
    Box some = box;
    some.offset[dim] += begin;
    some.extent[dim] = end - begin;
    return some;
  };
  const int64_t first = (range.begin + row - 1) / row, last = range.end / row;  // whole rows
  if (first > last) return add_range(rows(last, last + 1), dim + 1, {range.begin - last * row, range.end - last * row}, boxes);
  if (range.begin < first * row) add_range(rows(first - 1, first), dim + 1, {range.begin - (first - 1) * row, row}, boxes);
  if (first < last) boxes.push_back(rows(first, last));
  if (last * row < range.end) add_range(rows(last, last + 1), dim + 1, {0, range.end - last * row}, boxes);
}

}  // namespace

Box whole_box(const Shape& shape) {
  Box box{.offset = shape, .extent = shape};
  for (int dim = 0; dim < shape.dims(); ++dim) box.offset[dim] = 0;
  return box;
}

std::vector<Box> boxes_of_range(const Box& whole, Range range) {
  CHECK(range.begin >= 0 && range.begin <= range.end && range.end <= whole.extent.count(), "elements ", range.begin, " to ",
        range.end, " of ", whole.extent.text());
  std::vector<Box> boxes;
  add_range(whole, 0, range, boxes);
  return boxes;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box common = a;
  for (int dim = 0; dim < a.extent.dims(); ++dim) {
    const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
    const int64_t end = std::min(a.offset[dim] + a.extent[dim], b.offset[dim] + b.extent[dim]);
    if (begin >= end) return std::nullopt;
    common.offset[dim] = begin;
    common.extent[dim] = end - begin;
  }
  return common;
}

// How many boxes cover each element is a function on the grid with bounded support, and such a function is determined
// by its differences along every dim. So the boxes cover each element exactly once if and only if their signed corners
// add up to the corners of the whole.
std::string tiling_fault(const Shape& shape, const std::vector<Box>& boxes) {
  std::map<Corner, int64_t> sums;
  add_corners(sums, whole_box(shape), -1);
  int64_t covered = 0;
  for (const Box& box : boxes) {
    if (box.extent.count() == 0) continue;
    add_corners(sums, box, 1);
    covered += box.extent.count();
  }
  if (sums.empty()) return "";
  if (const std::string overlap = find_overlap(boxes); !overlap.empty()) return overlap;
  return "boxes cover " + std::to_string(covered) + " of " + std::to_string(shape.count()) + " elements";
}

}  // namespace shiftron
