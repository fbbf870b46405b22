// Bytes as a small shape and boxes in it: the checker of tilings compared with counting how often each element is
// covered, and the cuts of ranges and runs compared with copying element by element.
#include <numeric>

#include "checkpoint/boxes.h"
#include "fuzz/input.h"

namespace shiftron::fuzz {
namespace {

class Numbers {
 public:
  explicit Numbers(std::string_view bytes) : bytes_(bytes) {}
  bool any() const { return !bytes_.empty(); }
  // From the next byte (0 after the last one): a number from `least` to `most`.
  int64_t next(int64_t least, int64_t most) {
    const uint8_t byte = bytes_.empty() ? 0 : static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(bytes_.empty() ? 0 : 1);
    return least + byte % (most - least + 1);
  }

 private:
  std::string_view bytes_;
};

// In row-major order.
template <typename Visit>
void for_each_element(const Shape& shape, const Box& box, Visit visit) {
  const Box whole = whole_box(shape);
  for_each_run(whole, box, box, [&](int64_t from, int64_t to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) visit(from + i, to + i);
  });
}

// Boxes that tile `box`, by cuts; a later byte may damage them.
void cut(Numbers& numbers, const Box& box, int depth, std::vector<Box>& boxes) {
  const int dim = static_cast<int>(numbers.next(0, box.extent.dims() - 1));
  if (depth == 0 || box.extent[dim] < 2 || numbers.next(0, 3) == 0) {
    boxes.push_back(box);
    return;
  }
  const int64_t at = numbers.next(1, box.extent[dim] - 1);
  Box low = box, high = box;
  low.extent[dim] = at;
  high.offset[dim] += at;
  high.extent[dim] -= at;
  cut(numbers, low, depth - 1, boxes);
  cut(numbers, high, depth - 1, boxes);
}

Box random_box(Numbers& numbers, const Shape& shape) {
  Box box = whole_box(shape);
  for (int dim = 0; dim < shape.dims(); ++dim) {
    box.offset[dim] = numbers.next(0, shape[dim] - 1);
    box.extent[dim] = numbers.next(1, shape[dim] - box.offset[dim]);
  }
  return box;
}

void check_range(Numbers& numbers, const Box& whole) {
  const int64_t count = whole.extent.count();
  Range range;
  range.begin = numbers.next(0, count);
  range.end = range.begin + numbers.next(0, count - range.begin);
  int64_t at = range.begin;
  const std::vector<Box> boxes = boxes_of_range(whole, range);
  require(static_cast<int>(boxes.size()) <= 2 * whole.extent.dims() - 1, "a range is at most 2·dims − 1 boxes");
  for (const Box& box : boxes) {
    for_each_run(whole, box, box, [&](int64_t from, int64_t, int64_t run) {
      require(from == at, "the boxes of a range lie side by side");
      at += run;
    });
  }
  require(at == range.end, "the boxes of a range are all of it");
}

}  // namespace

std::string read_input(std::string_view bytes) {
  Numbers numbers(bytes);
  Shape shape;
  const int64_t dims = numbers.next(1, kMaxDims);
  for (int64_t dim = 0; dim < dims; ++dim) shape.append(numbers.next(1, dims > 3 ? 3 : 6));
  check_range(numbers, random_box(numbers, shape));

  std::vector<Box> boxes;
  if (numbers.next(0, 1) == 0) cut(numbers, whole_box(shape), 6, boxes);
  while (numbers.any() && boxes.size() < 64) {
    switch (numbers.next(0, 3)) {
      case 0:
        if (!boxes.empty()) boxes.erase(boxes.begin() + numbers.next(0, static_cast<int64_t>(boxes.size()) - 1));
        break;
      case 1:
        boxes.push_back(random_box(numbers, shape));
        break;
      case 2:
        if (!boxes.empty())
          boxes[static_cast<size_t>(numbers.next(0, static_cast<int64_t>(boxes.size()) - 1))] =
              random_box(numbers, shape);
        break;
      default:
        if (!boxes.empty())
          std::swap(boxes.front(), boxes[static_cast<size_t>(numbers.next(0, static_cast<int64_t>(boxes.size()) - 1))]);
    }
  }
  std::vector<int> covered(static_cast<size_t>(shape.count()), 0);
  for (const Box& box : boxes) {
    int64_t seen = 0;
    for_each_element(shape, box, [&](int64_t element, int64_t mine) {
      require(mine == seen++, "runs come in row-major order");
      ++covered[static_cast<size_t>(element)];
    });
    require(seen == box.extent.count(), "runs are all of a box");
  }
  const bool once = std::all_of(covered.begin(), covered.end(), [](int times) { return times == 1; });
  std::string fault = tiling_fault(shape, boxes);
  require(fault.empty() == once, "boxes are a tiling where every element is covered once: " + fault);
  return fault;
}

}  // namespace shiftron::fuzz
