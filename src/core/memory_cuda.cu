// cudaMalloc and cudaMallocHost, which are called only at the start of a run.
#include <cstring>
#include <exception>
#include <memory>

#include "core/call_cuda.h"
#include "core/check.h"
#include "core/memory_cuda.h"

namespace shiftron::cuda {
namespace {

struct Destroy {
  void operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
};
struct Release {
  DeviceKind kind;
  void operator()(void* data) const { release(kind, data); }
};

// On a stream of its own: the default stream would wait for all others.
void fill_zero_now(void* data, int64_t bytes) {
  cudaStream_t made = nullptr;
  check_call(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
  const std::unique_ptr<CUstream_st, Destroy> stream(made);
  check_call(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), made),
             detail::concatenate("cudaMemsetAsync of ", bytes, " bytes").c_str());
  check_call(cudaStreamSynchronize(made), "cudaStreamSynchronize");
}

}  // namespace

void* allocate(DeviceKind kind, int64_t bytes) {
  const bool pinned = kind == DeviceKind::pinned;
  void* data = nullptr;
  const cudaError_t status =
      pinned ? cudaMallocHost(&data, static_cast<size_t>(bytes)) : cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error: the caller reports it, and later calls must not
    return nullptr;
  }
  check_call(status, detail::concatenate(pinned ? "cudaMallocHost" : "cudaMalloc", " of ", bytes, " bytes").c_str());
  std::unique_ptr<void, Release> owned(data, Release{kind});
  if (pinned) {
    std::memset(data, 0, static_cast<size_t>(bytes));
  } else {
    fill_zero_now(data, bytes);
  }
  return owned.release();
}

std::string memory_text() {
  try {
    const DeviceMemoryInfo room = device_memory();
    return detail::concatenate(room.available, " of the GPU's ", room.total, " bytes are free");
  } catch (const Error&) {
    return "";  // another fault is being reported
  }
}

void release(DeviceKind kind, void* data) noexcept {
  if (std::uncaught_exceptions() > 0) cudaDeviceSynchronize();  // the work that uses it may still be running
  if (kind == DeviceKind::pinned) {
    cudaFreeHost(data);
  } else {
    cudaFree(data);
  }
}

DeviceMemoryInfo device_memory() {
  size_t available = 0, total = 0;
  check_call(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  return {.available = static_cast<int64_t>(available), .total = static_cast<int64_t>(total)};
}

void fill_undefined(const CudaContext& context, void* data, int64_t bytes) {
  check_call(cudaMemsetAsync(data, 0xFF, static_cast<size_t>(bytes), context.stream), "cudaMemsetAsync");
}

}  // namespace shiftron::cuda
