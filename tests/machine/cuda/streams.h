// Where a kernel's grid goes when it is launched.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace shiftron::machine {

// Behind what the stream was given before.
void run_in_stream(cudaStream_t stream, std::function<void()> operation);

}  // namespace shiftron::machine
