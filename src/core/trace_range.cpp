// NVTX, in builds with CUDA.
#include "core/trace_range.h"

#include "core/has_cuda.h"
#include "core/trace_range_cuda.h"

namespace shiftron {

bool traces_ranges() {
  return kHasCuda;
}

void push_range([[maybe_unused]] const char* name) {
  if constexpr (kHasCuda) cuda::push_range(name);
}

void pop_range() noexcept {
  if constexpr (kHasCuda) cuda::pop_range();
}

}  // namespace shiftron
