// Kernels as nvcc compiled them, instead of the host compiler's output for the same source: SHIFTRON_PTX names a folder
// of *.ptx (tests/cuda/static/run_ptx creates it), from which every launch is then executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace shiftron::machine {

bool executes_compiled_kernels();  // SHIFTRON_PTX is set

// What each thread does, of a kernel at this address with these values. Throws Error(crash) where the folder has no such
// kernel.
std::function<void()> compiled_body(const void* kernel, std::vector<std::vector<std::byte>> parameters, int64_t shared);

}  // namespace shiftron::machine
