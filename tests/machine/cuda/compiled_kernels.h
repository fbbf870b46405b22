// Kernels as nvcc compiled them, in place of what the host's compiler made of the same source: SHIFTRON_PTX names a folder
// of *.ptx (tests/cuda/static/run_ptx makes it), and every launch is then executed from there.
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
