// Versions of CUDA and NCCL, as their headers say, and of what the kernels use.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "core/check.h"
#include "kernels/versions_cuda.h"
#include "parallel/versions_cuda.h"

namespace shiftron::cuda {

std::string versions() {
  return detail::concatenate("CUDA ", CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10, ", ",
                             kernel_library_versions(), ", NCCL ", NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH);
}

}  // namespace shiftron::cuda
