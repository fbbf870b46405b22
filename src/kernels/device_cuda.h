// What CUDA bodies are written with, under nvcc and, against the software machine (tests/machine/cuda), under any
// compiler. Rules: blocks of a multiple of 32 threads, at most 1,024; every thread reaches every barrier and shuffle,
// all lanes of a warp take part in each; blocks tell each other nothing (a second kernel sums partial results in a
// fixed order); 64-bit offsets; no atomics, no inline assembly, no fast-math names.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "core/call_cuda.h"
#include "core/check.h"
#include "core/tensor.h"

// SHARED_ARRAY(float, slots, [2][32]); in a kernel: an array of the block. Its elements begin undefined.
#ifdef __CUDACC__
#define SHARED_ARRAY(T, name, ...) __shared__ T name __VA_ARGS__
#else
#include "cuda/device_shim.h"
#endif

namespace shiftron::cuda {

constexpr int kWarp = 32;
constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // of a grid's first dim; the others have at most 65,535

struct Grid {
  int64_t x = 1, y = 1;
};

// kernel<<<grid, block, 0, stream>>>(arguments...); nothing where the grid is empty.
template <typename... Parameters, typename... Arguments>
void launch_kernel(const char* name, void (*kernel)(Parameters...), Grid grid, int block, cudaStream_t stream,
                   Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0) return;
  CHECK(grid.x <= kMostBlocks && grid.y <= 65535 && block % kWarp == 0 && block > 0 && block <= 1024, name, ": grid ",
        grid.x, " x ", grid.y, ", blocks of ", block);
#ifdef __CUDACC__
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
  config.blockDim = dim3(static_cast<unsigned>(block));
  config.stream = stream;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
#else
  const cudaError_t status =
      machine::launch(name, grid.x, grid.y, block, stream,
                      [kernel, ... values = static_cast<Parameters>(arguments)] { kernel(values...); });
#endif
  if (status == cudaSuccess) return;
  check_call(status,
             detail::concatenate("kernel ", name, ", grid ", grid.x, " x ", grid.y, ", blocks of ", block).c_str());
}

// The type in which a kernel sees elements.
template <typename T>
struct DeviceElement {
  using type = T;
};
template <>
struct DeviceElement<bfloat16> {
  using type = __nv_bfloat16;
};

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <typename T>
__device__ T from_float(float value) {
  if constexpr (sizeof(T) == 2) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

// 16 bytes: read and written by one access. Pointers must be multiples of 16 bytes.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};
template <typename T>
__device__ Pack<T> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T>*>(from);
}
template <typename T>
__device__ void store_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(to) = pack;
}

// Of a launch: whether rows of these tensors can be read in packs. Else the same kernel goes element by element.
inline bool in_packs(std::initializer_list<ConstTensor> tensors) {
  for (const ConstTensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const int64_t pack = 16 / size_of(tensor.dtype());
    if (reinterpret_cast<uintptr_t>(tensor.raw()) % 16 != 0) return false;
    for (int dim = 0; dim < tensor.dims(); ++dim) {
      const bool last = dim == tensor.dims() - 1;
      if ((last ? tensor.extent(dim) : tensor.stride(dim)) % pack != 0) return false;
    }
  }
  return true;
}

// Sum and maximum over a warp; every lane has the result, in one order.
__device__ inline float warp_sum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  return value;
}
__device__ inline float warp_maximum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
  }
  return value;
}

// body(T{}) with T the type in which a kernel sees `dtype`: float32 or bfloat16.
template <typename Body>
void for_device_type(const char* name, DType dtype, Body&& body) {
  CHECK(dtype == DType::float32 || dtype == DType::bfloat16, name, " has no body for ", name_of(dtype), " in CUDA");
  if (dtype == DType::bfloat16) {
    body(__nv_bfloat16{});
  } else {
    body(float{});
  }
}
template <typename T>
T* device_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.raw());
}
template <typename T>
const T* device_data(const ConstTensor& tensor) {
  return static_cast<const T*>(tensor.raw());
}

}  // namespace shiftron::cuda
