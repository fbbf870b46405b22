// NVTX ranges, which cost one branch if no tool listens.
#include <nvtx3/nvToolsExt.h>

#include "core/trace_range_cuda.h"

namespace shiftron::cuda {

void push_range(const char* name) {
  nvtxRangePushA(name);
}

void pop_range() noexcept {
  nvtxRangePop();
}

}  // namespace shiftron::cuda
