// What the CUDA kernels that go along rows share: elements in packs or one by one, sums over a block.
#pragma once

#include "kernels/device_cuda.h"

namespace shiftron::cuda {

constexpr int kRowThreads = 256;  // of a block

// Neighbours that one access reads or writes. A kernel that goes along rows is made for both widths.
template <typename T, int kWidth>
struct alignas(kWidth * sizeof(T) < 16 ? kWidth * sizeof(T) : 16) Elements {
  T values[kWidth];
};
template <int kWidth, typename T>
__device__ Elements<T, kWidth> load_elements(const T* from) {
  return *reinterpret_cast<const Elements<T, kWidth>*>(from);
}
template <int kWidth, typename T>
__device__ void store_elements(T* to, const Elements<T, kWidth>& elements) {
  *reinterpret_cast<Elements<T, kWidth>*>(to) = elements;
}

template <int value>
struct Constant {
  static constexpr int kValue = value;
};
// body(T{}, Constant<width>{}): the type as for_device_type names it, and how many elements are read at once.
template <typename Body>
void for_row_kernel(const char* name, DType dtype, bool packed, Body&& body) {
  for_device_type(name, dtype, [&](auto element) {
    if (packed) {
      body(element, Constant<Pack<decltype(element)>::kCount>{});
    } else {
      body(element, Constant<1>{});
    }
  });
}

// Of operations whose only type here is float32.
inline void check_float32(const char* name, DType dtype) {
  CHECK(dtype == DType::float32, name, " has no body for ", name_of(dtype), " in CUDA");
}

// Sum and maximum over a block of kRowThreads; every thread has the result, in one order.
__device__ inline float block_sum(float value) {
  constexpr int kWarps = kRowThreads / kWarp;
  SHARED_ARRAY(float, sums, [kWarps]);
  const float warp = warp_sum(value);
  __syncthreads();  // the last call's result is read
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = warp;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < kWarps; ++i) sum += sums[i];
  return sum;
}
__device__ inline float block_maximum(float value) {
  constexpr int kWarps = kRowThreads / kWarp;
  SHARED_ARRAY(float, maxima, [kWarps]);
  const float warp = warp_maximum(value);
  __syncthreads();  // the last call's result is read
  if (threadIdx.x % kWarp == 0) maxima[threadIdx.x / kWarp] = warp;
  __syncthreads();
  float maximum = maxima[0];
  for (int i = 1; i < kWarps; ++i) maximum = fmaxf(maximum, maxima[i]);
  return maximum;
}

}  // namespace shiftron::cuda
