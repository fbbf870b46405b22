// Versions of cuBLASLt and cuDNN according to their headers.
#include <cublasLt.h>
#include <cudnn.h>

#include "core/check.h"
#include "kernels/versions_cuda.h"

namespace shiftron::cuda {

std::string kernel_library_versions() {
  return detail::concatenate("cuBLASLt ", CUBLAS_VER_MAJOR, ".", CUBLAS_VER_MINOR, ".", CUBLAS_VER_PATCH, ", cuDNN ",
                             CUDNN_MAJOR, ".", CUDNN_MINOR, ".", CUDNN_PATCHLEVEL);
}

}  // namespace shiftron::cuda
