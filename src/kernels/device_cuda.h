// Building blocks of CUDA bodies, for nvcc and, with the emulator (tests/machine/cuda), for any compiler. Rules: blocks
// have a multiple of 32 threads, at most 1,024; every thread reaches every barrier and shuffle, and all lanes of a warp
// take part; blocks do not communicate (a second kernel sums partial results in a fixed order); await_earlier_kernels()
// comes first; offsets are 64-bit; no atomics, no inline assembly, no fast-math functions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <type_traits>

#include "core/call_cuda.h"
#include "core/check.h"
#include "core/tensor.h"

// SHARED_ARRAY(float, slots, [2][32]); inside a kernel: an array of the block, initially undefined.
// SHARED_BYTES(T, name); the Grid::shared bytes that the launch requested, as T*.
#ifdef __CUDACC__
#define SHARED_ARRAY(T, name, ...) __shared__ T name __VA_ARGS__
#define SHARED_BYTES(T, name)                                   \
  extern __shared__ __align__(16) unsigned char shared_bytes[]; \
  T* const name = reinterpret_cast<T*>(shared_bytes)
#else
#include "cuda/device_shim.h"
#endif

namespace shiftron::cuda {

constexpr int kWarp = 32;
constexpr int kBlockThreads = 256;                       // for kernels with no reason for another size
constexpr int64_t kSharedOfAll = 48 << 10;               // bytes of a block that need no opt-in, arrays included
constexpr int64_t kReductionBytes = 1024;                // of these, at most, for arrays of sums over a block
constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // of a grid's first dim; the others have at most 65,535
constexpr size_t kMostParameterBytes = 4096;             // of all parameters of a kernel

struct Grid {
  int64_t x = 1, y = 1;
  int64_t shared = 0;  // bytes for SHARED_BYTES, at most CudaContext::most_shared with the kernel's arrays
};
// Blocks of kBlockThreads threads, with one thread for each of `count` elements.
inline Grid grid_for(int64_t count) {
  return {.x = (count + kBlockThreads - 1) / kBlockThreads};
}

// First call in every kernel. A kernel may be launched while the previous one in its stream still runs ("programmatic
// dependent launch", CUDA programming guide); this returns when that one has ended and its writes are visible.
__device__ inline void await_earlier_kernels() {
#if !defined(__CUDACC__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
  cudaTriggerProgrammaticLaunchCompletion();  // the next kernel may launch once all blocks of this one have started
  cudaGridDependencySynchronize();
#endif
}

#ifdef __CUDACC__
// Compute capability, times ten, of the PTX from which the kernel's machine code was compiled.
template <typename... Parameters>
int compiled_for(void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes{};
  check_call(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)), "cudaFuncGetAttributes");
  return attributes.ptxVersion;
}
#endif

// kernel<<<grid, block, 0, stream>>>(arguments...); does nothing if the grid is empty.
template <typename... Parameters, typename... Arguments>
void launch_kernel(const char* name, void (*kernel)(Parameters...), Grid grid, int block, cudaStream_t stream,
                   Arguments... arguments) {
  static_assert((0 + ... + ((sizeof(Parameters) + 7) / 8 * 8)) <= kMostParameterBytes);
  if (grid.x == 0 || grid.y == 0) return;
  CHECK(grid.x <= kMostBlocks && grid.y <= 65535 && block % kWarp == 0 && block > 0 && block <= 1024, name, ": grid ",
        grid.x, " x ", grid.y, ", blocks of ", block);
  if (grid.shared + kReductionBytes > kSharedOfAll) {
    check_call(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(grid.shared)),
               detail::concatenate("cudaFuncSetAttribute of kernel ", name, ", ", grid.shared, " bytes").c_str());
  }
#ifdef __CUDACC__
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
  config.blockDim = dim3(static_cast<unsigned>(block));
  config.dynamicSmemBytes = static_cast<size_t>(grid.shared);
  config.stream = stream;
  static const bool awaits = compiled_for(kernel) >= 90;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  if (awaits) {
    config.attrs = &early;
    config.numAttrs = 1;
  }
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
#else
  const cudaError_t status =
      machine::launch({.name = name,
                       .kernel = reinterpret_cast<const void*>(kernel),
                       .x = grid.x,
                       .y = grid.y,
                       .block = block,
                       .shared = grid.shared,
                       .early = true},
                      stream, kernel, static_cast<Parameters>(arguments)...);
#endif
  if (status == cudaSuccess) return;
  check_call(status,
             detail::concatenate("kernel ", name, ", grid ", grid.x, " x ", grid.y, ", blocks of ", block).c_str());
}

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

// Elements in 16 bytes.
template <typename T>
constexpr int kPackOf = 16 / sizeof(T);

// kCount adjacent elements, accessed 16 bytes at a time, so pointers to them must be multiples of 16. Or one element.
template <typename T, int kCount>
struct alignas(kCount == 1 ? alignof(T) : 16) Elements {
  static_assert(kCount == 1 || kCount % kPackOf<T> == 0);
  T values[kCount];
  __device__ T& operator[](int i) { return values[i]; }
  __device__ const T& operator[](int i) const { return values[i]; }
};
template <int kCount, typename T>
__device__ Elements<T, kCount> load_elements(const T* from) {
  return *reinterpret_cast<const Elements<T, kCount>*>(from);
}
template <int kCount, typename T>
__device__ void store_elements(T* to, const Elements<T, kCount>& elements) {
#ifdef __CUDACC__  // nvcc splits a plain assignment of freshly computed elements, but not this one
  if constexpr (kCount > 1) {
    for (int i = 0; i < kCount; i += kPackOf<T>) {
      uint4 pack;
      memcpy(&pack, elements.values + i, sizeof(pack));
      __stwb(reinterpret_cast<uint4*>(to + i), pack);
    }
    return;
  }
#endif
  *reinterpret_cast<Elements<T, kCount>*>(to) = elements;
}

// kCount adjacent elements, or zeros if they do not exist, stored as words: if elements may be zeros, nvcc keeps each
// one in its own register.
template <typename T, int kCount>
struct Words {
  using Word = std::conditional_t<kCount == 1, T, uint4>;
  static constexpr int kWords = kCount == 1 ? 1 : kCount / kPackOf<T>;
  Word words[kWords] = {};

  Words() = default;
  __device__ Words(const T* from, bool there) {
    if (!there) return;
    const auto loaded = load_elements<kCount>(from);
    memcpy(words, loaded.values, sizeof(words));
  }
  __device__ void keep(bool kept) {
    for (int i = 0; i < kWords; ++i) words[i] = kept ? words[i] : Word{};
  }
  __device__ Elements<T, kCount> elements() const {
    Elements<T, kCount> result;
    memcpy(result.values, words, sizeof(words));
    return result;
  }
};

// store_elements() to a block's shared memory.
template <int kCount, typename T>
__device__ void store_in_block(T* to, const Elements<T, kCount>& elements) {
  *reinterpret_cast<Elements<T, kCount>*>(to) = elements;
}

// For a launch: whether rows of these tensors can be read in packs. If not, the same kernel works element by element.
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

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Maximum {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Reduces over a warp in a fixed order; every lane gets the result.
template <typename Combine, typename T>
__device__ T over_warp(T value, const Combine& combine) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
  }
  return value;
}
template <typename T>
__device__ T warp_sum(T value) {
  return over_warp(value, Sum{});
}

// Reduces over a block of kBlockThreads in a fixed order; every thread gets the result.
template <typename Combine, typename T>
__device__ T over_block(T value, const Combine& combine) {
  constexpr int kWarps = kBlockThreads / kWarp;
  SHARED_ARRAY(T, results, [kWarps]);
  const T of_warp = over_warp(value, combine);
  __syncthreads();  // the results of the previous call have been read
  if (threadIdx.x % kWarp == 0) results[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  T result = results[0];
  for (int i = 1; i < kWarps; ++i) result = combine(result, results[i]);
  return result;
}
template <typename T>
__device__ T block_sum(T value) {
  return over_block(value, Sum{});
}
__device__ inline float block_maximum(float value) {
  return over_block(value, Maximum{});
}

// body(T{}) with T the element type of `dtype` in a kernel: float32 or bfloat16.
template <typename Body>
void for_device_type(const char* name, DType dtype, Body&& body) {
  CHECK(dtype == DType::float32 || dtype == DType::bfloat16, name, " has no body for ", name_of(dtype), " in CUDA");
  if (dtype == DType::bfloat16) {
    body(__nv_bfloat16{});
  } else {
    body(float{});
  }
}
// body(T{}, Constant<width>{}): also passes how many elements are read at once.
template <int kValue>
using Constant = std::integral_constant<int, kValue>;
template <typename Body>
void for_device_type(const char* name, DType dtype, bool packed, Body&& body) {
  for_device_type(name, dtype, [&](auto element) {
    if (packed) {
      body(element, Constant<kPackOf<decltype(element)>>{});
    } else {
      body(element, Constant<1>{});
    }
  });
}
// For operations that support only float32 here.
inline void check_float32(const char* name, DType dtype) {
  CHECK(dtype == DType::float32, name, " has no body for ", name_of(dtype), " in CUDA");
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
