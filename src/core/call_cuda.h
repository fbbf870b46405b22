// What becomes of the status that calls of CUDA return.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace shiftron::cuda {

// Throws what CUDA says of a failed call, with the call; where memory is short an Error(bad_input) with what helps.
void check_call(cudaError_t status, const char* call);
[[noreturn]] void throw_no_memory(const std::string& call, const std::string& said);  // by CUDA, or a library of it

}  // namespace shiftron::cuda
