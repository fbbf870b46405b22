// What becomes of the status that calls of CUDA return.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/check.h"

namespace shiftron::cuda {

// Throws what CUDA says, with the call; where memory is short or no code is for the GPU, an Error(bad_input) with help.
void check_call(cudaError_t status, const char* call);
// Of CUDA, or of a library of it.
[[noreturn]] inline void throw_no_memory(const std::string& call, const std::string& said) {
  throw_bad_input(call, ": ", said,
                  "; end what else uses this GPU, or lower train.micro_batch, set parallel.recompute=full, or raise "
                  "parallel.tp or parallel.pp");
}

}  // namespace shiftron::cuda
