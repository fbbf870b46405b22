// b is packed in panels as wide as a tile, in part of its depth if c holds the sums meanwhile. Threads take blocks of
// a's rows, pack them for the second-level cache and multiply them by one panel after another.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu_loops.h"
#include "kernels/tile_product.h"
#include "kernels/widened_product.h"

namespace shiftron::fast {
namespace {

constexpr int64_t kFewestRows = 24, kMostRows = 96;  // of a, per task: in whole tiles
constexpr int64_t kTasksOfThread = 4;                // if there are so many rows
constexpr int64_t kDepth = 256;                      // of a task's rows, packed at a time
constexpr int64_t kStride = kDepth + 16;             // rows of a power of two would all map to the same cache set
constexpr int64_t kRightFloats = int64_t{1} << 20;   // of b at a time, which stay in a last-level cache
constexpr int64_t kMostColumns = 1024;               // of b at a time
constexpr int64_t kHeldColumns = 512;                // the same if a task holds their sums
constexpr int64_t kSummedDepth = 2048;               // of b at a time, if c holds the sums
constexpr int64_t kRowsOfPacking = 32;               // of b

// to [rows, columns], rows to_stride apart.
SHIFTRON_CLONES void widen_rows(const bfloat16* from, int64_t stride, int64_t rows, int64_t columns, float* to,
                                int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row, from += stride, to += to_stride) {
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) to[i] = to_accumulate(from[i]);
  }
}

int64_t parts_of(int64_t whole, int64_t part) {
  return (whole + part - 1) / part;
}
// Splits `whole` into parts as equal as possible, in whole units, each of at most `most` or one unit; returns their
// size.
int64_t equal_part(int64_t whole, int64_t most, int64_t unit) {
  const int64_t parts = parts_of(whole, std::max(most / unit, int64_t{1}) * unit);
  return parts_of(parts_of(whole, parts), unit) * unit;
}

class WidenedProduct {
 public:
  explicit WidenedProduct(const MatrixProduct& of)
      : of_(of),
        width_(float32_tile_columns()),
        holds_sums_(of.c_dtype != DType::float32),
        depth_(holds_sums_ ? of.k : equal_part(of.k, kSummedDepth, 1)),
        columns_(equal_part(of.n, std::min(holds_sums_ ? kHeldColumns : kMostColumns, kRightFloats / depth_), width_)),
        rows_(std::clamp(equal_part(of.m, parts_of(of.m, kTasksOfThread * of.threads), kFloat32TileRows), kFewestRows,
                         kMostRows)),
        row_tasks_(parts_of(of.m, rows_)),
        groups_(std::clamp(of.threads / row_tasks_, int64_t{1}, columns_ / width_)) {
    thread_local std::vector<float> room;
    const int64_t floats = right_floats() + of.threads * floats_of_thread() + kCacheLine / int64_t{sizeof(float)};
    if (static_cast<int64_t>(room.size()) < floats) room = std::vector<float>(static_cast<size_t>(floats));
    right_ = at_cache_line(room.data());
  }

  void run() const {
    for (int64_t depth = 0; depth < of_.k; depth += depth_) {
      for (int64_t column = 0; column < of_.n; column += columns_) {
        multiply({depth, std::min(depth_, of_.k - depth), column, std::min(columns_, of_.n - column)});
      }
    }
  }

 private:
  // The part of b that is packed at a time.
  struct Right {
    int64_t depth, depths, column, columns;
  };

  int64_t right_floats() const { return columns_ * depth_; }
  int64_t left_floats() const { return rows_ * kStride; }
  int64_t floats_of_thread() const { return left_floats() + (holds_sums_ ? rows_ * columns_ : 0); }
  float* panel(const Right& of, int64_t column) const { return right_ + column * of.depths; }

  void multiply(const Right& of) const {
    of_.b.transposed ? pack_transposed(of) : pack_rows(of);
    const int64_t panels = parts_of(of.columns, width_);
    const auto work_of = [&](int thread) { return right_ + right_floats() + thread * floats_of_thread(); };
    parallel_dynamic(of_.threads, row_tasks_ * groups_, work_of, [&](int64_t task, float* work) {
      const int64_t row = task / groups_ * rows_, group = task % groups_;
      const int64_t begin = panels * group / groups_ * width_, end = panels * (group + 1) / groups_ * width_;
      run_task(of, row, std::min(rows_, of_.m - row), begin, std::min(end, of.columns), work);
    });
  }

  // Computes c's rows from `row` on, for b's columns [begin, end).
  void run_task(const Right& of, int64_t row, int64_t rows, int64_t begin, int64_t end, float* left) const {
    const int64_t at_c = row * of_.c_stride + of.column;
    float* sums = holds_sums_ ? left + left_floats() : static_cast<float*>(of_.c) + at_c;
    const int64_t sums_stride = holds_sums_ ? columns_ : of_.c_stride;
    const int64_t step = equal_part(of.depths, kDepth, 1);
    for (int64_t depth = 0; depth < of.depths; depth += step) {
      const int64_t depths = std::min(step, of.depths - depth);
      pack_left(row, rows, of.depth + depth, depths, left);
      for (int64_t column = begin; column < end; column += width_) {
        tile_product_float32(rows, std::min(width_, end - column), depths, {left, kStride, 1},
                             panel(of, column) + depth * width_, width_, of_.keep || of.depth + depth > 0,
                             sums + column, sums_stride);
      }
    }
    if (!holds_sums_) return;
    auto* c = static_cast<bfloat16*>(of_.c) + at_c;
    for (int64_t i = 0; i < rows; ++i) {
      narrow(sums + i * sums_stride + begin, c + i * of_.c_stride + begin, end - begin);
    }
  }

  // Both write [panel of columns][depths][width_]; columns of the last panel beyond the edge are not written.
  void pack_transposed(const Right& of) const {
    parallel_for(of_.threads, parts_of(of.columns, width_), [&](int64_t task) {
      const int64_t column = task * width_;
      transpose_float32(of_.b.element<bfloat16>(of.depth, of.column + column), of_.b.stride,
                        std::min(width_, of.columns - column), of.depths, panel(of, column), width_);
    });
  }
  void pack_rows(const Right& of) const {
    parallel_blocks(of_.threads, of.depths, kRowsOfPacking, [&](int64_t begin, int64_t end) {
      for (int64_t column = 0; column < of.columns; column += width_) {
        widen_rows(of_.b.element<bfloat16>(of.depth + begin, of.column + column), of_.b.stride, end - begin,
                   std::min(width_, of.columns - column), panel(of, column) + begin * width_, width_);
      }
    });
  }

  // Writes [rows][kStride].
  void pack_left(int64_t row, int64_t rows, int64_t depth, int64_t depths, float* to) const {
    const bfloat16* from = of_.a.element<bfloat16>(row, depth);
    if (of_.a.transposed)
      transpose_float32(from, of_.a.stride, depths, rows, to, kStride);
    else
      widen_rows(from, of_.a.stride, rows, depths, to, kStride);
  }

  const MatrixProduct& of_;
  int64_t width_;            // of a panel
  bool holds_sums_;          // of a task's rows, because c cannot; then all of b's depth is packed
  int64_t depth_, columns_;  // of b, packed at a time
  int64_t rows_;             // of a, per task: in whole tiles
  int64_t row_tasks_;
  int64_t groups_;  // of panels, each a task for every block of rows: more than one if rows are few
  float* right_ = nullptr;
};

}  // namespace

void multiply_widened(const MatrixProduct& product) {
  WidenedProduct(product).run();
}

}  // namespace shiftron::fast
