// Of the libraries behind the kernels of CUDA; only in builds that have it (kHasCuda).
#pragma once

#include <string>

namespace shiftron::cuda {

std::string kernel_library_versions();  // that the program was built with: "cuBLASLt 13.1.0, cuDNN 9.19.0"

}  // namespace shiftron::cuda
