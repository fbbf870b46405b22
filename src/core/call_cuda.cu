// Errors of CUDA calls.
#include "core/call_cuda.h"
#include "core/check.h"

namespace shiftron::cuda {

namespace {

// Whether the error comes from a kernel that ran before the call that reports it.
bool is_late(cudaError_t status) {
  switch (status) {
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable: return true;
    default: return false;
  }
}

}  // namespace

void check_call(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  const std::string said = std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ")";
  if (status == cudaErrorMemoryAllocation) throw_no_memory(call, said);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    throw_bad_input(call, ": ", said,
                    "; this build has no code for this GPU, which needs compute capability 8.0 or later and an entry "
                    "in CMAKE_CUDA_ARCHITECTURES (docs/gpu.md)");
  }
  throw_crash(call, ": ", said,
              is_late(status) ? "; earlier work of the GPU may have caused it: set CUDA_LAUNCH_BLOCKING=1 to find it, "
                                "or use compute-sanitizer if there are pipeline stages"
                              : "");
}

}  // namespace shiftron::cuda
