// Versions of the libraries that the CUDA kernels use; only in builds with CUDA (kHasCuda).
#pragma once

#include <string>

namespace shiftron::cuda {

std::string kernel_library_versions();  // those that the program was built with: "cuBLASLt 13.1.0, cuDNN 9.19.0"

}  // namespace shiftron::cuda
