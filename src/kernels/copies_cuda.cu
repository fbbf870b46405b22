// Fills and copies that CUDA itself performs.
#include "core/call_cuda.h"
#include "kernels/bodies.h"

namespace shiftron::cuda {

void fill_zero(const CudaContext& context, Tensor x) {
  check_call(cudaMemsetAsync(x.raw(), 0, static_cast<size_t>(x.bytes()), context.stream), "fill_zero: cudaMemsetAsync");
}

// x and y are contiguous; at most one of them is in pinned memory.
void copy_bytes(const CudaContext& context, ConstTensor x, Tensor y) {
  const cudaMemcpyKind kind = x.device() == DeviceKind::pinned   ? cudaMemcpyHostToDevice
                              : y.device() == DeviceKind::pinned ? cudaMemcpyDeviceToHost
                                                                 : cudaMemcpyDeviceToDevice;
  check_call(cudaMemcpyAsync(y.raw(), x.raw(), static_cast<size_t>(x.bytes()), kind, context.stream),
             "copy_bytes: cudaMemcpyAsync");
}

}  // namespace shiftron::cuda
