// Prefetches memory that is read or written soon, a few cache lines at a time during other computation. Prefetching
// that many lines at once would stall the computation that should hide them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/check.h"
#include "kernels/cpu_loops.h"

namespace shiftron::fast {

class LinesAhead {
 public:
  enum class Use { reading, writing };
  static constexpr int64_t kLine = 64;

  // Adds rows of row_bytes, `stride` bytes apart, after those added before. Each row starts at a cache line.
  void add(Use use, const void* first, int64_t rows, int64_t row_bytes, int64_t stride) {
    CHECK(rows > 0 && row_bytes > 0 && added_ < stretches_.size(), "no lines to fetch, or too many kinds of them");
    stretches_[added_++] = {use, static_cast<const char*>(first), rows, row_bytes, stride};
  }

  // Calls body(use, line) for the next `count` lines, or for those that are left.
  template <typename Body>
  SHIFTRON_INLINE void take(int count, const Body& body) {
    for (; count > 0 && now_ < added_; --count) {
      Stretch& of = stretches_[now_];
      body(of.use, of.row + at_);
      at_ += kLine;
      if (at_ < of.row_bytes) continue;
      at_ = 0;
      of.row += of.stride;
      if (--of.rows == 0) ++now_;
    }
  }

 private:
  struct Stretch {
    Use use;
    const char* row;
    int64_t rows, row_bytes, stride;
  };
  std::array<Stretch, 4> stretches_;
  size_t added_ = 0, now_ = 0;
  int64_t at_ = 0;  // bytes into the row
};

// Prefetches the next `count` lines, if any are left.
SHIFTRON_INLINE void fetch_lines(LinesAhead* ahead, int count) {
  if (ahead == nullptr) return;
  ahead->take(count, [](LinesAhead::Use use, const char* line) {
    if (use == LinesAhead::Use::writing) return prefetch_to_write(line);
    __builtin_prefetch(line, 0, 2);
  });
}

}  // namespace shiftron::fast
