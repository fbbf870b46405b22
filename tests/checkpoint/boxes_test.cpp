// Boxes: intersections, runs between boxes, exact tiling; all compared with counting element by element.
#include "checkpoint/boxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace shiftron {
namespace {

using Random = std::mt19937_64;

int64_t below(Random& random, int64_t bound) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
}

Shape random_shape(Random& random) {
  Shape shape;
  const int dims = 1 + static_cast<int>(below(random, kMaxDims));
  for (int dim = 0; dim < dims; ++dim) shape.append(1 + below(random, 6));
  return shape;
}

Box random_box(Random& random, const Shape& shape) {
  Box box = whole_box(shape);
  for (int dim = 0; dim < shape.dims(); ++dim) {
    box.offset[dim] = below(random, shape[dim]);
    box.extent[dim] = 1 + below(random, shape[dim] - box.offset[dim]);
  }
  return box;
}

// Logical indices of the elements of `box` in row-major order.
std::vector<int64_t> elements(const Shape& shape, const Box& box) {
  std::vector<int64_t> found;
  for (int64_t index = 0; index < shape.count(); ++index) {
    int64_t rest = index;
    bool inside = true;
    for (int dim = shape.dims() - 1; dim >= 0; --dim) {
      const int64_t at = rest % shape[dim];
      rest /= shape[dim];
      inside = inside && at >= box.offset[dim] && at < box.offset[dim] + box.extent[dim];
    }
    if (inside) found.push_back(index);
  }
  return found;
}

// Cuts `box` at random until about `pieces` are there.
std::vector<Box> random_tiling(Random& random, const Shape& shape, int pieces) {
  std::vector<Box> boxes = {whole_box(shape)};
  for (int i = 0; i < pieces; ++i) {
    Box& box = boxes[static_cast<size_t>(below(random, static_cast<int64_t>(boxes.size())))];
    const int dim = static_cast<int>(below(random, shape.dims()));
    if (box.extent[dim] < 2) continue;
    Box rest = box;
    box.extent[dim] = 1 + below(random, box.extent[dim] - 1);
    rest.offset[dim] += box.extent[dim];
    rest.extent[dim] -= box.extent[dim];
    boxes.push_back(rest);
  }
  return boxes;
}

TEST(Boxes, RunsCopyExactlyTheCommonElements) {
  Random random(1);
  for (int trial = 0; trial < 500; ++trial) {
    const Shape shape = random_shape(random);
    const Box a = random_box(random, shape), b = random_box(random, shape);
    const std::vector<int64_t> in_a = elements(shape, a), in_b = elements(shape, b);
    std::vector<int64_t> copied(in_b.size(), -1), expected(in_b.size(), -1);
    for (size_t i = 0; i < in_b.size(); ++i) {
      if (std::find(in_a.begin(), in_a.end(), in_b[i]) != in_a.end()) expected[i] = in_b[i];
    }
    const auto common = intersect(a, b);
    EXPECT_EQ(common.has_value(), std::any_of(expected.begin(), expected.end(), [](int64_t i) { return i >= 0; }));
    if (!common) continue;
    int64_t before = -1;
    for_each_run(a, b, *common, [&](int64_t from, int64_t to, int64_t count) {
      EXPECT_GT(from, before) << "not ascending";
      before = from + count - 1;
      for (int64_t i = 0; i < count; ++i)
        copied.at(static_cast<size_t>(to + i)) = in_a.at(static_cast<size_t>(from + i));
    });
    EXPECT_EQ(copied, expected) << shape.text();
  }
}

TEST(Boxes, RowsCoverABoxInOrder) {
  const Box box = {.offset = {3, 1}, .extent = {7, 4}};
  for (const int64_t most : {0, 4, 11, 28, 1000}) {
    int64_t next = 0;
    for_each_rows(box, most, [&](const Box& rows, int64_t first) {
      EXPECT_EQ(first, next) << most;
      EXPECT_EQ(rows.offset, (Shape{3 + first / 4, 1}));
      EXPECT_EQ(rows.extent[1], 4);
      EXPECT_LE(rows.extent.count(), std::max<int64_t>(most, 4));
      next += rows.extent.count();
    });
    EXPECT_EQ(next, 28) << most;
  }
}

TEST(Boxes, WholeRowsAreOneRun) {
  const Shape shape = {8, 3, 5};
  const Box rows = {.offset = {2, 0, 0}, .extent = {4, 3, 5}};
  int runs = 0;
  for_each_run(whole_box(shape), rows, rows, [&](int64_t from, int64_t to, int64_t n) {
    ++runs;
    EXPECT_EQ(from, 30);
    EXPECT_EQ(to, 0);
    EXPECT_EQ(n, 60);
  });
  EXPECT_EQ(runs, 1);
}

TEST(Boxes, TilingIsAcceptedAndEveryChangeOfItRefused) {
  Random random(2);
  for (int trial = 0; trial < 400; ++trial) {
    const Shape shape = random_shape(random);
    std::vector<Box> boxes = random_tiling(random, shape, 12);
    std::shuffle(boxes.begin(), boxes.end(), random);
    ASSERT_EQ(tiling_fault(shape, boxes), "");
    std::vector<Box> without(boxes.begin() + 1, boxes.end());
    EXPECT_NE(tiling_fault(shape, without), "");
    std::vector<Box> twice = boxes;
    twice.push_back(boxes.back());
    EXPECT_THAT(tiling_fault(shape, twice), ::testing::HasSubstr("overlap"));
    std::vector<Box> replaced = without;  // the same number of boxes, perhaps the same volume
    replaced.push_back(boxes.size() > 1 ? boxes[1] : random_box(random, shape));
    if (!(replaced.back() == boxes[0])) {
      EXPECT_NE(tiling_fault(shape, replaced), "");
    }
  }
}

TEST(Boxes, RandomBoxesAgreeWithCounting) {
  Random random(3);
  int tilings = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const Shape shape = {1 + below(random, 2), 1 + below(random, 3)};
    std::vector<int> counts(static_cast<size_t>(shape.count()), 0);
    std::vector<Box> boxes;
    for (int i = static_cast<int>(below(random, 4)); i >= 0; --i) {
      boxes.push_back(random_box(random, shape));
      for (const int64_t index : elements(shape, boxes.back())) ++counts[static_cast<size_t>(index)];
    }
    const bool exact = std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; });
    tilings += exact;
    ASSERT_EQ(tiling_fault(shape, boxes).empty(), exact);
  }
  EXPECT_GT(tilings, 500);
}

TEST(Boxes, ARangeIsBoxesInItsOrder) {
  Random random(4);
  for (int trial = 0; trial < 2000; ++trial) {
    const Shape shape = random_shape(random);
    const Box box = random_box(random, shape);
    const int64_t begin = below(random, box.extent.count() + 1);
    const Range range = {begin, begin + below(random, box.extent.count() - begin + 1)};
    const std::vector<int64_t> all = elements(shape, box);
    const std::vector<int64_t> expected(all.begin() + range.begin, all.begin() + range.end);
    const std::vector<Box> boxes = boxes_of_range(box, range);
    std::vector<int64_t> found;
    int64_t at = range.begin;
    for (const Box& one : boxes) {
      const std::vector<int64_t> own = elements(shape, one);
      EXPECT_EQ(static_cast<int64_t>(own.size()), one.extent.count()) << "leaves the tensor";
      EXPECT_GT(own.size(), 0u);
      found.insert(found.end(), own.begin(), own.end());
      int runs = 0;
      for_each_run(box, one, one, [&](int64_t from, int64_t to, int64_t count) {
        ++runs;
        EXPECT_EQ(from, at);
        EXPECT_EQ(to, 0);
        at += count;
      });
      EXPECT_EQ(runs, 1) << "not contiguous";
    }
    ASSERT_EQ(found, expected) << shape.text() << " " << box.text();
    EXPECT_LE(static_cast<int>(boxes.size()), 2 * shape.dims() - 1);
  }
}

TEST(Boxes, ARangeBeyondItsBoxIsRefused) {
  const Box box{{1, 2}, {3, 4}};
  EXPECT_EQ(boxes_of_range(box, {0, 12}), std::vector<Box>{box});
  EXPECT_TRUE(boxes_of_range(box, {5, 5}).empty());
  EXPECT_THROW((void)boxes_of_range(box, {0, 13}), Error);
  EXPECT_THROW((void)boxes_of_range(box, {5, 4}), Error);
}

TEST(Boxes, ThousandsOfBoxesTakeNoTime) {
  const Shape shape = {4096, 4096};
  std::vector<Box> boxes;
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 256; ++j) boxes.push_back({{i * 64, j * 16}, {64, 16}});
  }
  EXPECT_EQ(tiling_fault(shape, boxes), "");
}

}  // namespace
}  // namespace shiftron
