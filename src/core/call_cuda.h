// Checks the status that CUDA calls return.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/check.h"

namespace shiftron::cuda {

// Throws CUDA's message and the call; if memory is short, or the build has no code for this GPU, Error(bad_input) with
// advice.
void check_call(cudaError_t status, const char* call);
// For CUDA and its libraries.
[[noreturn]] inline void throw_no_memory(const std::string& call, const std::string& said) {
  throw_bad_input(
      call, ": ", said,
      "; stop other programs on this GPU, or lower train.micro_batch, set parallel.recompute=full, or raise "
      "parallel.tp or parallel.pp");
}

}  // namespace shiftron::cuda
