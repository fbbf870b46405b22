// TraceRange: a stretch of this thread's work by its name, as tools that trace CUDA show it. Nothing in builds without.
#pragma once

#include "core/check.h"
#include "core/stream.h"

namespace shiftron {

namespace cuda {  // only in builds that have it (kHasCuda)
void push_range(const char* name);
void pop_range() noexcept;
}  // namespace cuda

class TraceRange {
 public:
  template <typename... Parts>
  explicit TraceRange([[maybe_unused]] const Parts&... name) {
    if constexpr (kHasCuda) cuda::push_range(detail::concatenate(name...).c_str());
  }
  ~TraceRange() {
    if constexpr (kHasCuda) cuda::pop_range();
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace shiftron
