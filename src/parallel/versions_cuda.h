// Versions of CUDA and its libraries; only in builds with CUDA (kHasCuda).
#pragma once

#include <string>

namespace shiftron::cuda {

std::string versions();  // that the program was built with: "CUDA 13.0, cuBLASLt 13.1.0, cuDNN 9.19.0, NCCL 2.28.9"

}  // namespace shiftron::cuda
