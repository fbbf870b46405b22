// CUDA memory; only in builds with CUDA (kHasCuda).
#pragma once

#include <string>

#include "core/stream.h"

namespace shiftron::cuda {

// On the device, or pinned on the host; zeroed. Null if there is not enough.
void* allocate(DeviceKind kind, int64_t bytes);
std::string memory_text();  // how much of the calling thread's GPU is left; empty if CUDA does not report it
void release(DeviceKind kind, void* data) noexcept;  // everything that uses it must be done

// Bytes of the calling thread's device.
struct DeviceMemoryInfo {
  int64_t available = 0, total = 0;
};
DeviceMemoryInfo device_memory();

// NaN in every floating type, in the stream's order.
void fill_undefined(const CudaContext& context, void* data, int64_t bytes);

}  // namespace shiftron::cuda
