// Shared by the fast CPU bodies: clones per instruction set, threads, a vectorisable exp.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/element.h"
#include "kernels/thread_team.h"

// For leaf functions: only loops, no parallel regions. Three versions are compiled, and the one for the processor is
// bound at program start. Sanitizers do not work with this, because the binding runs before they are initialised.
#if defined(__x86_64__) && !defined(SHIFTRON_ONE_INSTRUCTION_SET) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SHIFTRON_CLONED
#define SHIFTRON_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SHIFTRON_CLONES
#endif
// For the functions that leaf functions call, so that they are compiled for the same instruction sets.
#define SHIFTRON_INLINE [[gnu::always_inline]] inline

namespace shiftron::fast {

// exp(x) = 2ⁿ · e^r, n = round(x / ln 2), |r| ≤ ln 2 / 2, e^r by a polynomial of degree 6 (least squares, error 4e-9).
// Relative error below 1.5e-7; 0 below −87.3, about 3e38 above 88.3; NaN stays NaN.
SHIFTRON_INLINE float exponential(float x) {
  const float bounded = x > 88.3f ? 88.3f : x;
  const float shifted = bounded * 1.44269504f + 12582912.0f;  // 1.5 · 2²³: the low bits are n
  const float n = shifted - 12582912.0f;
  const float r = bounded - n * 0.693145752f - n * 1.42860677e-6f;
  const float series =
      0.4999998859f + r * (0.1666651840f + r * (0.04166953423f + r * (0.008368923426f + r * 0.001375138193f)));
  const float value = 1.0f + (r + r * r * series);
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + (127u << 23));
  return x < -87.3f ? 0.0f : value * power;
}
SHIFTRON_INLINE float sigmoid(float x) {
  return 1.0f / (1.0f + exponential(-x));
}

// Maps floats to integers of the same order (NaN outermost) and back. A maximum of integers vectorises; a maximum of
// floats that respects NaN does not.
SHIFTRON_INLINE int32_t order_of(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
SHIFTRON_INLINE float value_of(int32_t order) {
  return std::bit_cast<float>(order ^ ((order >> 31) & 0x7fffffff));
}

// y = a + b, where y may be a or b (elementwise_cpu.cpp).
void add_elements(const float* a, const float* b, float* y, int64_t count);
void add_elements(const bfloat16* a, const bfloat16* b, bfloat16* y, int64_t count);

// Prefetches the cache line of `at` for writing. The compiler's builtin prefetches it for reading, and the write would
// then request it a second time.
SHIFTRON_INLINE void prefetch_to_write(const void* at) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

inline constexpr int64_t kCacheLine = 64;  // bytes

// The address of the first cache line that begins in `room`.
template <typename T>
T* at_cache_line(T* room) {
  const auto address = reinterpret_cast<uintptr_t>(room);
  return reinterpret_cast<T*>((address + kCacheLine - 1) / kCacheLine * kCacheLine);
}

// Rows of row_bytes, `stride` bytes apart; each row starts at a cache line.
SHIFTRON_INLINE void prefetch_rows_to_write(const void* first, int64_t rows, int64_t row_bytes, int64_t stride) {
  const auto* row = static_cast<const char*>(first);
  for (int64_t i = 0; i < rows; ++i, row += stride) {
    for (int64_t at = 0; at < row_bytes; at += kCacheLine) prefetch_to_write(row + at);
  }
}

// Calls body(task) for every task below `tasks`; the result must not depend on which thread runs it.
template <typename Body>
void parallel_for(int threads, int64_t tasks, const Body& body) {
  if (threads <= 1 || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  in_team(threads, [&](int thread, int all) {  // neighbouring tasks on one thread
    const int64_t least = tasks / all, longer = tasks % all;
    const int64_t begin = thread * least + std::min<int64_t>(thread, longer);
    const int64_t end = begin + least + (thread < longer ? 1 : 0);
    for (int64_t task = begin; task < end; ++task) body(task);
  });
}

// The same for tasks of unequal length: body(task, work), where each thread made its own work = make(thread) first. A
// thread takes neighbouring tasks, which read adjacent memory: half of its share of the remaining ones at a time, and
// the last ones singly.
template <typename Make, typename Body>
void parallel_dynamic(int threads, int64_t tasks, const Make& make, const Body& body) {
  if (threads <= 1 || tasks <= 1) {
    auto work = make(0);
    for (int64_t task = 0; task < tasks; ++task) body(task, work);
    return;
  }
  std::atomic<int64_t> next = 0;
  in_team(threads, [&](int thread, int all) {
    auto work = make(thread);
    for (int64_t begin = next.load(); begin < tasks;) {
      const int64_t end = begin + std::max<int64_t>(1, (tasks - begin) / (2 * all));
      if (!next.compare_exchange_weak(begin, end)) continue;
      for (int64_t task = begin; task < end; ++task) body(task, work);
      begin = next.load();
    }
  });
}

// Calls body(begin, end) for blocks of `block` rows; the block boundaries do not depend on the thread count.
template <typename Body>
void parallel_blocks(int threads, int64_t rows, int64_t block, const Body& body) {
  parallel_for(threads, (rows + block - 1) / block,
               [&](int64_t task) { body(task * block, std::min(rows, (task + 1) * block)); });
}

}  // namespace shiftron::fast
