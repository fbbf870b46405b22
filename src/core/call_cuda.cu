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
                    "; this program was built for other GPUs than this one: compute capability 8.0 or later is needed, "
                    "and CMAKE_CUDA_ARCHITECTURES names the kinds that a build serves (docs/gpu.md)");
  }
  throw_crash(call, ": ", said,
              is_late(status)
                  ? "; it may be of work that the GPU was given before: CUDA_LAUNCH_BLOCKING=1 tells where, "
                    "with pipeline stages compute-sanitizer"
                  : "");
}

}  // namespace shiftron::cuda
