// NVTX ranges; only in builds with CUDA (kHasCuda).
#pragma once

namespace shiftron::cuda {

void push_range(const char* name);
void pop_range() noexcept;

}  // namespace shiftron::cuda
