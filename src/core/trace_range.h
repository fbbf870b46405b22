// TraceRange: a named range of this thread's work, shown by tools that trace CUDA. Does nothing in builds without CUDA.
#pragma once

#include "core/check.h"

namespace shiftron {

bool traces_ranges();
void push_range(const char* name);
void pop_range() noexcept;

class TraceRange {
 public:
  template <typename... Parts>
  explicit TraceRange(const Parts&... name) {
    if (traces_ranges()) push_range(detail::concatenate(name...).c_str());
  }
  ~TraceRange() {
    if (traces_ranges()) pop_range();
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace shiftron
