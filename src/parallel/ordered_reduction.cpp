// Loops of the ordered reduction, blocked so that the running result stays in the first-level cache.
#include "parallel/ordered_reduction.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

// Every clone adds the same numbers in the same order: the bits do not depend on the processor.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define SHIFTRON_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SHIFTRON_CLONES  // the thread sanitizer is not ready when resolvers of clones run
#endif

namespace shiftron {
namespace {

constexpr int64_t kBlock = 1024;  // elements

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    return a + b;
  }
};
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return ((b > a) | (b != b)) ? b : a;
    return b > a ? b : a;
  }
};

inline float widen(bfloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
inline bfloat16 round_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40;  // of a NaN, which rounding could turn into an infinity
  return {static_cast<uint16_t>(value != value ? quiet : rounded)};
}

template <typename Operation, typename T>
__attribute__((always_inline)) inline void reduce(const T* parts, int ranks, int64_t count, T* out) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    float running[kBlock];
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t length = std::min(kBlock, count - begin);
      for (int64_t i = 0; i < length; ++i) running[i] = widen(parts[begin + i]);
      for (int rank = 1; rank < ranks; ++rank) {
        const bfloat16* part = parts + rank * count + begin;
        for (int64_t i = 0; i < length; ++i) running[i] = Operation::apply(running[i], widen(part[i]));
      }
      for (int64_t i = 0; i < length; ++i) out[begin + i] = round_to_bfloat16(running[i]);
    }
  } else {
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t length = std::min(kBlock, count - begin);
      T* __restrict running = out + begin;
      std::memcpy(running, parts + begin, static_cast<size_t>(length) * sizeof(T));
      for (int rank = 1; rank < ranks; ++rank) {
        const T* __restrict part = parts + rank * count + begin;
        for (int64_t i = 0; i < length; ++i) running[i] = Operation::apply(running[i], part[i]);
      }
    }
  }
}

SHIFTRON_CLONES void sum_float32(const float* parts, int ranks, int64_t count, float* out) {
  reduce<Sum>(parts, ranks, count, out);
}
SHIFTRON_CLONES void sum_float64(const double* parts, int ranks, int64_t count, double* out) {
  reduce<Sum>(parts, ranks, count, out);
}
SHIFTRON_CLONES void sum_bfloat16(const bfloat16* parts, int ranks, int64_t count, bfloat16* out) {
  reduce<Sum>(parts, ranks, count, out);
}

template <typename T>
void dispatch(Reduction reduction, const void* parts, int ranks, int64_t count, void* out) {
  const T* from = static_cast<const T*>(parts);
  T* to = static_cast<T*>(out);
  if (reduction == Reduction::max) {
    reduce<Max>(from, ranks, count, to);
  } else if constexpr (std::is_same_v<T, float>) {
    sum_float32(from, ranks, count, to);
  } else if constexpr (std::is_same_v<T, double>) {
    sum_float64(from, ranks, count, to);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    sum_bfloat16(from, ranks, count, to);
  } else {  // integers wrap around, as adding them in any order would
    using Unsigned = std::make_unsigned_t<T>;
    reduce<Sum>(static_cast<const Unsigned*>(parts), ranks, count, static_cast<Unsigned*>(out));
  }
}

}  // namespace

void reduce_in_rank_order(DType dtype, Reduction reduction, const void* parts, int ranks, int64_t count, void* out) {
  CHECK(dtype != DType::uint8 || reduction == Reduction::max, "uint8 has no sum");
  switch (dtype) {
    case DType::float64: return dispatch<double>(reduction, parts, ranks, count, out);
    case DType::float32: return dispatch<float>(reduction, parts, ranks, count, out);
    case DType::bfloat16: return dispatch<bfloat16>(reduction, parts, ranks, count, out);
    case DType::int64: return dispatch<int64_t>(reduction, parts, ranks, count, out);
    case DType::int32: return dispatch<int32_t>(reduction, parts, ranks, count, out);
    case DType::uint16:
      return dispatch<uint16_t>(reduction, parts, ranks, count, out);
    case DType::uint8: return dispatch<uint8_t>(reduction, parts, ranks, count, out);
  }
}

}  // namespace shiftron
