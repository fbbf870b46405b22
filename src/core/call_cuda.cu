// Errors of CUDA.
#include "core/call_cuda.h"
#include "core/check.h"

namespace shiftron::cuda {

void check_call(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw_crash(call, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
}

}  // namespace shiftron::cuda
