// Products y = x wᵀ of few rows on the CPU. Reading w limits them, so w is read once, straight through, and the loop
// must be faster than the memory.
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/cpu_loops.h"
#include "kernels/matrix.h"

namespace shiftron::fast {
namespace {

constexpr int64_t kBlock = 32;         // outputs of a task
constexpr int64_t kPrefetched = 4096;  // bytes ahead; the processor's own prefetching stops at the end of the page

using Lanes = float __attribute__((vector_size(64)));
using LaneBits = uint32_t __attribute__((vector_size(64)));
constexpr int64_t kLanes = 16;
constexpr int64_t kSums = 4;  // vectors of sums, to hide their latency

SHIFTRON_INLINE void prefetch_two_lines(const void* at) {
  const auto* ahead = reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(at) + kPrefetched);
  __builtin_prefetch(ahead, 0, 0);
  __builtin_prefetch(ahead + 64, 0, 0);
}

// The sums of a dot product, in an order that does not depend on the instruction set.
struct Sums {
  Lanes of[kSums] = {};
  // w: the bits of floats
  SHIFTRON_INLINE void add(int64_t index, const float* x, const LaneBits& w) {
    Lanes factor, weight;
    std::memcpy(&factor, x, sizeof factor);
    std::memcpy(&weight, &w, sizeof weight);
    of[index] += factor * weight;
  }
  SHIFTRON_INLINE float total() const {
    const Lanes all = (of[0] + of[1]) + (of[2] + of[3]);
    float part[kLanes];
    std::memcpy(part, &all, sizeof part);
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (int64_t i = 0; i < width; ++i) part[i] += part[i + width];
    }
    return part[0];
  }
};

SHIFTRON_INLINE float dot(const float* x, const float* w, int64_t in) {
  Sums sums;
  int64_t i = 0;
  for (; i + kSums * kLanes <= in; i += kSums * kLanes) {
    prefetch_two_lines(w + i);
    prefetch_two_lines(w + i + 2 * kLanes);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kSums; ++j) {
      LaneBits weights;
      std::memcpy(&weights, w + i + j * kLanes, sizeof weights);
      sums.add(j, x + i + j * kLanes, weights);
    }
  }
  for (; i + kLanes <= in; i += kLanes) {
    LaneBits weights;
    std::memcpy(&weights, w + i, sizeof weights);
    sums.add(0, x + i, weights);
  }
  float rest = 0;
  for (; i < in; ++i) rest += x[i] * w[i];
  return sums.total() + rest;
}

// x holds the elements of even index first, then those of odd index: a word of memory holds two weights; a shift makes
// a float of one, and a mask of the other.
SHIFTRON_INLINE float dot(const float* x, const bfloat16* w, int64_t in) {
  static_assert(std::endian::native == std::endian::little);
  const float *even = x, *odd = x + (in + 1) / 2;
  Sums sums;
  int64_t i = 0;  // counts pairs
  for (; i + 2 * kLanes <= in / 2; i += 2 * kLanes) {
    prefetch_two_lines(w + 2 * i);
#pragma GCC unroll 2
    for (int64_t j = 0; j < 2; ++j) {
      LaneBits pairs;
      std::memcpy(&pairs, w + 2 * (i + j * kLanes), sizeof pairs);
      sums.add(2 * j, even + i + j * kLanes, pairs << 16);
      sums.add(2 * j + 1, odd + i + j * kLanes, pairs & 0xffff0000u);
    }
  }
  if (i + kLanes <= in / 2) {
    LaneBits pairs;
    std::memcpy(&pairs, w + 2 * i, sizeof pairs);
    sums.add(0, even + i, pairs << 16);
    sums.add(1, odd + i, pairs & 0xffff0000u);
    i += kLanes;
  }
  float rest = 0;
  for (; 2 * i < in; ++i) {
    rest += even[i] * to_accumulate(w[2 * i]);
    if (2 * i + 1 < in) rest += odd[i] * to_accumulate(w[2 * i + 1]);
  }
  return sums.total() + rest;
}

template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  SHIFTRON_INLINE T* at(int64_t row) const { return data + row * stride; }
};

// Only the first row reads an output's weights from outside the first-level cache.
template <typename T, typename Y>
SHIFTRON_INLINE void block_outputs(int64_t rows, int64_t outputs, int64_t in, const Rows<const float>& x,
                                   const Rows<const T>& w, const Rows<Y>& y) {
  for (int64_t output = 0; output < outputs; ++output) {
    for (int64_t row = 0; row < rows; ++row) y.at(row)[output] = round_to<Y>(dot(x.at(row), w.at(output), in));
  }
}
SHIFTRON_CLONES void block(int64_t rows, int64_t outputs, int64_t in, const Rows<const float>& x,
                           const Rows<const float>& w, const Rows<float>& y) {
  block_outputs(rows, outputs, in, x, w, y);
}
SHIFTRON_CLONES void block(int64_t rows, int64_t outputs, int64_t in, const Rows<const float>& x,
                           const Rows<const bfloat16>& w, const Rows<float>& y) {
  block_outputs(rows, outputs, in, x, w, y);
}
SHIFTRON_CLONES void block(int64_t rows, int64_t outputs, int64_t in, const Rows<const float>& x,
                           const Rows<const bfloat16>& w, const Rows<bfloat16>& y) {
  block_outputs(rows, outputs, in, x, w, y);
}

SHIFTRON_CLONES void widen_pairs(const bfloat16* from, int64_t count, float* to) {
  float* odd = to + (count + 1) / 2;
#pragma omp simd
  for (int64_t i = 0; i < count / 2; ++i) {
    to[i] = to_accumulate(from[2 * i]);
    odd[i] = to_accumulate(from[2 * i + 1]);
  }
  if (count % 2 == 1) to[count / 2] = to_accumulate(from[count - 1]);
}

// x: the rows of a, in float32.
template <typename T, typename Y>
void blocks(const MatrixProduct& of, const Rows<const float>& x) {
  const Rows<const T> weights{static_cast<const T*>(of.b.data), of.b.stride};
  const Rows<Y> to{static_cast<Y*>(of.c), of.c_stride};
  parallel_blocks(of.threads, of.n, kBlock, [&](int64_t begin, int64_t end) {
    block(of.m, end - begin, of.k, x, Rows<const T>{weights.at(begin), weights.stride},
          Rows<Y>{to.data + begin, to.stride});
  });
}

}  // namespace

bool multiply_few_rows(const MatrixProduct& of) {
  const Matrix& a = of.a;
  if (of.m > few_rows(a.dtype) || a.transposed || !of.b.transposed || of.keep || a.dtype != of.b.dtype) return false;
  if (a.dtype == DType::float32 && of.c_dtype == DType::float32) {
    blocks<float, float>(of, {static_cast<const float*>(a.data), a.stride});
    return true;
  }
  if (a.dtype != DType::bfloat16) return false;
  thread_local std::vector<float> widened;
  widened.resize(std::max(widened.size(), static_cast<size_t>(of.m * of.k)));
  for (int64_t row = 0; row < of.m; ++row) {
    widen_pairs(static_cast<const bfloat16*>(a.data) + row * a.stride, of.k, widened.data() + row * of.k);
  }
  const Rows<const float> x{widened.data(), of.k};
  if (of.c_dtype == DType::float32)
    blocks<bfloat16, float>(of, x);
  else
    blocks<bfloat16, bfloat16>(of, x);
  return true;
}

}  // namespace shiftron::fast
