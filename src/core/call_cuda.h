// What becomes of the status that calls of CUDA return.
#pragma once

#include <cuda_runtime_api.h>

namespace shiftron::cuda {

// Throws what CUDA says of a failed call, with the call.
void check_call(cudaError_t status, const char* call);

}  // namespace shiftron::cuda
