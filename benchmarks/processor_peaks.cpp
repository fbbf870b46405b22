#include "processor_peaks.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "kernels/matrix_unit.h"
#include "kernels/thread_team.h"
#include "kernels/tile_product.h"

namespace shiftron {
namespace {

using Clock = std::chrono::steady_clock;

// Operations per second of `call` on every thread at once: the best of some rounds, since neighbours disturb.
double rate(int threads, double operations, const std::function<void()>& call) {
  constexpr int kRounds = 20, kCalls = 200;
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> seconds(static_cast<size_t>(threads));
    in_team(threads, [&](int thread, int) {
      wait_for_team();
      const auto start = Clock::now();
      for (int i = 0; i < kCalls; ++i) call();
      seconds[static_cast<size_t>(thread)] = std::chrono::duration<double>(Clock::now() - start).count();
    });
    best = std::max(best, operations * kCalls * threads / *std::max_element(seconds.begin(), seconds.end()));
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
constexpr int64_t kVectorSteps = 64;

__attribute__((target("avx512f"))) void multiply_add_wide(const float* a, const float* b, float* c) {
  multiply_add<Wide, kRows, kWideVectors>(kVectorSteps, a, b, c);
}
__attribute__((target("avx2,fma"))) void multiply_add_narrow(const float* a, const float* b, float* c) {
  multiply_add<Narrow, kRows, kNarrowVectors>(kVectorSteps, a, b, c);
}

void add_float32(int threads, std::vector<Peak>& peaks) {
  const bool wide = __builtin_cpu_supports("avx512f");
  if (!wide && !__builtin_cpu_supports("fma")) return;
  const int64_t lanes = wide ? 16 * kWideVectors : 8 * kNarrowVectors;
  const double operations = 2.0 * static_cast<double>(kRows * lanes * kVectorSteps);
  peaks.push_back({wide ? "fp32 FMA, 512 bits" : "fp32 FMA, 256 bits", false, rate(threads, operations, [&] {
                     alignas(64) thread_local float a[kRows * kVectorSteps], b[16 * kWideVectors * kVectorSteps], c[16];
                     (wide ? multiply_add_wide : multiply_add_narrow)(a, b, c);
                   })});
}
#else
void add_float32(int, std::vector<Peak>&) {}
#endif

// Operands that are not zero: with zeros a processor draws less power, and may run faster.
constexpr uint32_t kTwoOnes = 0x3f803f80;
struct alignas(64) Words {
  static constexpr size_t kCount = 4096;
  Words() { std::fill_n(of, kCount, kTwoOnes); }
  uint32_t of[kCount];
};

void add_vectors(int threads, std::vector<Peak>& peaks) {
  const fast::TileBody* body = fast::tile_body(ProductsBy::vectors);
  if (body == nullptr) return;
  constexpr int64_t kM = 24, kN = 64, kPairs = 48;
  peaks.push_back({"vdpbf16ps", true, rate(threads, 4.0 * kM * kN * kPairs, [&] {
                     thread_local const Words a, b;
                     alignas(64) thread_local float c[kM * kN];
                     body->product(kM, kN, kPairs, {a.of, kPairs, 1}, b.of, kN, false, c, kN);
                   })});
}

#if defined(__x86_64__)
// 2 × 2 tiles of sums, as large products have them: four loads to four products.
void add_matrix_unit(int threads, std::vector<Peak>& peaks) {
  if (!fast::matrix_unit_available()) return;
  constexpr int64_t kSteps = 256, kStepWords = 512, kRowBytes = 64, kSecond = kStepWords / 2;
  peaks.push_back({"tdpbf16ps", true, rate(threads, 2.0 * 32 * 32 * 32 * kSteps, [&] {
                     using Unit = fast::MatrixUnit;
                     thread_local const Words a, b;
                     Unit::configure(fast::TileConfiguration::whole());
                     Unit::zero<0>(), Unit::zero<1>(), Unit::zero<2>(), Unit::zero<3>();
                     for (int64_t step = 0; step < kSteps; ++step) {
                       const int64_t at = step * kStepWords % static_cast<int64_t>(Words::kCount);
                       Unit::load<4>(a.of + at, kRowBytes);
                       Unit::load<6>(b.of + at, kRowBytes);
                       Unit::multiply<0, 4, 6>();
                       Unit::load<7>(b.of + at + kSecond, kRowBytes);
                       Unit::multiply<1, 4, 7>();
                       Unit::load<5>(a.of + at + kSecond, kRowBytes);
                       Unit::multiply<2, 5, 6>();
                       Unit::multiply<3, 5, 7>();
                     }
                     Unit::release();
                   })});
}
#else
void add_matrix_unit(int, std::vector<Peak>&) {}
#endif

}  // namespace

std::vector<Peak> processor_peaks(int threads) {
  std::vector<Peak> peaks;
  add_float32(threads, peaks);
  add_vectors(threads, peaks);
  add_matrix_unit(threads, peaks);
  return peaks;
}

}  // namespace shiftron
