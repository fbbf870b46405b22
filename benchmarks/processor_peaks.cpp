#include "processor_peaks.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "kernels/tile_product.h"

namespace shiftron {
namespace {

using Clock = std::chrono::steady_clock;

// Operations per second of `call` on every thread at once: the best of some rounds, since neighbours disturb.
double rate(int threads, double operations, const std::function<void()>& call) {
  constexpr int kRounds = 20, kCalls = 200;
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    double seconds = 0;
#pragma omp parallel num_threads(threads) reduction(max : seconds)
    {
#pragma omp barrier
      const auto start = Clock::now();
      for (int i = 0; i < kCalls; ++i) call();
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    }
    best = std::max(best, operations * kCalls * threads / seconds);
  }
  return best;
}

#if defined(__x86_64__)
// rows × vectors sums in registers, fed by rows + vectors loads.
template <typename Vector, int rows, int vectors>
[[gnu::always_inline]] inline void multiply_add(int64_t steps, const float* a, const float* b, float* c) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  Vector sums[rows][vectors] = {};
  const auto* of_b = reinterpret_cast<const Vector*>(b);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i) sums[row][i] += a[step * rows + row] * of_b[step * vectors + i];
    }
  }
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < vectors; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) c[lane] += sums[row][i][lane];
    }
  }
}

typedef float Wide [[gnu::vector_size(64)]];
typedef float Narrow [[gnu::vector_size(32)]];
constexpr int kRows = 6, kWideVectors = 4, kNarrowVectors = 2;
constexpr int64_t kSteps = 64;

__attribute__((target("avx512f"))) void multiply_add_wide(const float* a, const float* b, float* c) {
  multiply_add<Wide, kRows, kWideVectors>(kSteps, a, b, c);
}
__attribute__((target("avx2,fma"))) void multiply_add_narrow(const float* a, const float* b, float* c) {
  multiply_add<Narrow, kRows, kNarrowVectors>(kSteps, a, b, c);
}

void add_float32(int threads, std::vector<Peak>& peaks) {
  const bool wide = __builtin_cpu_supports("avx512f");
  if (!wide && !__builtin_cpu_supports("fma")) return;
  const int64_t lanes = wide ? 16 * kWideVectors : 8 * kNarrowVectors;
  const double operations = 2.0 * static_cast<double>(kRows * lanes * kSteps);
  peaks.push_back({wide ? "fp32 FMA, 512 bits" : "fp32 FMA, 256 bits", false, rate(threads, operations, [&] {
                     alignas(64) thread_local float a[kRows * kSteps], b[16 * kWideVectors * kSteps], c[16];
                     (wide ? multiply_add_wide : multiply_add_narrow)(a, b, c);
                   })});
}
#else
void add_float32(int, std::vector<Peak>&) {}
#endif

// A tile of which all operands, 28 KiB, stay in the cache.
void add_tiles(int threads, ProductsBy by, const char* instruction, int64_t m, int64_t n, int64_t pairs,
               std::vector<Peak>& peaks) {
  const fast::TileBody* body = fast::tile_body(by);
  if (body == nullptr) return;
  const double operations = 4.0 * static_cast<double>(m * n * pairs);
  peaks.push_back({instruction, true, rate(threads, operations, [&] {
                     constexpr size_t kWords = 4096;
                     alignas(64) thread_local uint32_t a[kWords], b[kWords];
                     alignas(64) thread_local float c[kWords];
                     body->product(m, n, pairs, {a, pairs, 1}, b, n, false, c, n);
                   })});
}

}  // namespace

std::vector<Peak> processor_peaks(int threads) {
  std::vector<Peak> peaks;
  add_float32(threads, peaks);
  add_tiles(threads, ProductsBy::vectors, "vdpbf16ps", 24, 64, 48, peaks);
  add_tiles(threads, ProductsBy::tiles, "tdpbf16ps", 32, 32, 112, peaks);
  return peaks;
}

}  // namespace shiftron
