// What CUDA's compiler provides to kernels without a header, for any other compiler: a thread's indices, barriers,
// shuffles and votes. The processor (processor.h) implements them; what is missing here does not compile, such as fast
// arithmetic.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <type_traits>
#include <vector>

#include "cuda/compiled_kernels.h"

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;

namespace shiftron::machine {

using Place = std::source_location;

struct Launch {
  const char* name = nullptr;
  const void* kernel = nullptr;  // that cudaFuncSetAttribute names
  int64_t x = 1, y = 1;          // blocks
  int block = 0;                 // threads
  int64_t shared = 0;            // bytes of each block for SHARED_BYTES
  bool early = false;            // it may begin before those before it have ended: each thread has to wait for them
};
// Hands a grid to the stream: `thread_body` for every thread of it.
cudaError_t launch(const Launch& grid, cudaStream_t stream, std::function<void()> thread_body);
// The same of a kernel and its values; what nvcc made of it is executed where SHIFTRON_PTX says so.
template <typename... Parameters>
cudaError_t launch(const Launch& grid, cudaStream_t stream, void (*kernel)(Parameters...),
                   std::type_identity_t<Parameters>... values) {
  const auto bytes_of = [](const auto& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    return std::vector<std::byte>(first, first + sizeof(value));
  };
  if (executes_compiled_kernels()) {
    Launch compiled = grid;
    compiled.early = false;  // which machine code of older devices knows nothing of
    return launch(compiled, stream, compiled_body(reinterpret_cast<const void*>(kernel), {bytes_of(values)...}, grid.shared));
  }
  return launch(grid, stream, [kernel, ... kept = values] { kernel(kept...); });
}

// The block's array of this key, 16-byte aligned, of NaN when the block begins.
void* shared_array(const char* name, const void* key, size_t bytes, const Place& place);
// The bytes that the launch asked for, in the same way.
void* shared_bytes(const char* name, const Place& place);

// Where a thread waits for the kernels before its own.
void await_earlier_kernels();
// Where threads of a block, or the lanes of a warp that `mask` names, wait for each other.
void meet_block(const Place& place);
void meet_lanes(unsigned mask, const Place& place);
// The `bits` that lane `source` brought.
uint64_t shuffle(const char* name, unsigned mask, uint64_t bits, int source, const Place& place);
// The lanes that brought true.
unsigned vote(const char* name, unsigned mask, bool value, const Place& place);

template <typename T>
T shuffle_value(const char* name, unsigned mask, T value, int source, const Place& place) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(name, mask, bits, source, place);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline int lane() {
  return static_cast<int>(threadIdx.x % 32);
}
// `source` where it lies among the `width` lanes around the calling one, else the calling one.
inline int within(int source, int width) {
  return source >= 0 && source / width == lane() / width ? source : lane();
}

}  // namespace shiftron::machine

// In a kernel: SHARED_ARRAY(float, slots, [2][32]);
#define SHARED_ARRAY(T, name, ...)                                                  \
  static const char name##_key = 0;                                                 \
  using name##_type = T __VA_ARGS__;                                                \
  name##_type& name = *static_cast<name##_type*>(::shiftron::machine::shared_array( \
      #name, &name##_key, sizeof(name##_type), ::shiftron::machine::Place::current()))

// In a kernel: SHARED_BYTES(float, row);
#define SHARED_BYTES(T, name) \
  T* const name = static_cast<T*>(::shiftron::machine::shared_bytes(#name, ::shiftron::machine::Place::current()))

inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline void cudaGridDependencySynchronize() {
  shiftron::machine::await_earlier_kernels();
}

inline void __syncthreads(const shiftron::machine::Place& place = shiftron::machine::Place::current()) {
  shiftron::machine::meet_block(place);
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu,
                       const shiftron::machine::Place& place = shiftron::machine::Place::current()) {
  shiftron::machine::meet_lanes(mask, place);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              const shiftron::machine::Place& place = shiftron::machine::Place::current()) {
  const int first = shiftron::machine::lane() / width * width;
  return shiftron::machine::shuffle_value("__shfl_sync", mask, value, first + (source & (width - 1)), place);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  const shiftron::machine::Place& place = shiftron::machine::Place::current()) {
  const int source = shiftron::machine::within(shiftron::machine::lane() ^ bits, width);
  return shiftron::machine::shuffle_value("__shfl_xor_sync", mask, value, source, place);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   const shiftron::machine::Place& place = shiftron::machine::Place::current()) {
  const int source = shiftron::machine::within(shiftron::machine::lane() + static_cast<int>(distance), width);
  return shiftron::machine::shuffle_value("__shfl_down_sync", mask, value, source, place);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 const shiftron::machine::Place& place = shiftron::machine::Place::current()) {
  const int source = shiftron::machine::within(shiftron::machine::lane() - static_cast<int>(distance), width);
  return shiftron::machine::shuffle_value("__shfl_up_sync", mask, value, source, place);
}

inline unsigned __ballot_sync(unsigned mask, int value,
                              const shiftron::machine::Place& place = shiftron::machine::Place::current()) {
  return shiftron::machine::vote("__ballot_sync", mask, value != 0, place);
}
inline int __any_sync(unsigned mask, int value,
                      const shiftron::machine::Place& place = shiftron::machine::Place::current()) {
  return shiftron::machine::vote("__any_sync", mask, value != 0, place) != 0;
}
inline int __all_sync(unsigned mask, int value,
                      const shiftron::machine::Place& place = shiftron::machine::Place::current()) {
  return shiftron::machine::vote("__all_sync", mask, value != 0, place) == mask;
}

// Accesses with hints to caches.
template <typename T>
T __ldg(const T* from) {
  return *from;
}
template <typename T>
T __ldcs(const T* from) {
  return *from;
}
template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
void __stcs(T* to, T value) {
  *to = value;
}
template <typename T>
void __stcg(T* to, T value) {
  *to = value;
}

// Arithmetic that a host's library lacks.
inline float rsqrtf(float value) {
  return 1.0f / std::sqrt(value);
}
inline double rsqrt(double value) {
  return 1.0 / std::sqrt(value);
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fsqrt_rn(float value) {
  return std::sqrt(value);
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float __int_as_float(int bits) {
  return __uint_as_float(static_cast<unsigned>(bits));
}
inline int __float_as_int(float value) {
  return static_cast<int>(__float_as_uint(value));
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline int __clz(int bits) {
  return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits));
}
