// cudaMalloc and cudaMallocHost, which are called at a run's start alone.
#include <cstring>
#include <exception>

#include "core/call_cuda.h"
#include "core/memory_cuda.h"

namespace shiftron::cuda {
namespace {

// The default stream would wait for all others.
void fill_zero_now(void* data, int64_t bytes) {
  cudaStream_t stream = nullptr;
  check_call(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
  check_call(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream), "cudaMemsetAsync");
  check_call(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  check_call(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace

void* allocate(DeviceKind kind, int64_t bytes) {
  const bool pinned = kind == DeviceKind::pinned;
  void* data = nullptr;
  const cudaError_t status =
      pinned ? cudaMallocHost(&data, static_cast<size_t>(bytes)) : cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // is told by whoever asked; later calls are not to report it
    return nullptr;
  }
  check_call(status, pinned ? "cudaMallocHost" : "cudaMalloc");
  if (pinned) {
    std::memset(data, 0, static_cast<size_t>(bytes));
  } else {
    fill_zero_now(data, bytes);
  }
  return data;
}

void release(DeviceKind kind, void* data) noexcept {
  if (std::uncaught_exceptions() > 0) cudaDeviceSynchronize();  // nobody has waited
  if (kind == DeviceKind::pinned) {
    cudaFreeHost(data);
  } else {
    cudaFree(data);
  }
}

DeviceRoom device_room() {
  size_t available = 0, total = 0;
  check_call(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  return {.available = static_cast<int64_t>(available), .total = static_cast<int64_t>(total)};
}

void fill_undefined(const CudaContext& context, void* data, int64_t bytes) {
  check_call(cudaMemsetAsync(data, 0xFF, static_cast<size_t>(bytes), context.stream), "cudaMemsetAsync");
}

}  // namespace shiftron::cuda
