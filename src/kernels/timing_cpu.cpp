// What this processor does in a second, timed at start.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "kernels/bodies.h"
#include "kernels/matrix.h"
#include "kernels/tile_product.h"

namespace shiftron {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Three square matrices of ones in own memory, outside of every ledger.
class TimedProducts {
 public:
  TimedProducts(DType dtype, int64_t size)
      : memory_(static_cast<size_t>(3 * size * size * size_of(DType::float32)) / sizeof(float), 0.0f),
        a_(memory_.data(), dtype, {size, size}, DeviceKind::cpu),
        b_(memory_.data() + size * size, dtype, {size, size}, DeviceKind::cpu),
        c_(memory_.data() + 2 * size * size, dtype, {size, size}, DeviceKind::cpu),
        sum_(memory_.data() + 2 * size * size, DType::float32, {size, size}, DeviceKind::cpu) {}
  // The library's own buffers, megabytes that no step uses, go back to the system.
  ~TimedProducts() { malloc_trim(0); }
  TimedProducts(const TimedProducts&) = delete;
  TimedProducts& operator=(const TimedProducts&) = delete;

  void forward(const CpuOptions& cpu) {
    cpu.bodies == Bodies::fast&& a_.dtype() != DType::float64 ? fast::matmul_forward(cpu, a_, b_, c_, {})
                                                              : specification::matmul_forward(cpu, a_, b_, c_, {});
  }
  // Shortest of three rounds after one that warms up; a round is one product of each kind.
  double seconds_of_a_round(const CpuOptions& cpu) {
    double shortest = 0;
    for (int round = 0; round < 4; ++round) {
      const auto start = Clock::now();
      fast::matmul_forward(cpu, a_, b_, c_, {});
      fast::matmul_backward_input(cpu, a_, b_, c_, {});
      fast::matmul_backward_weight(cpu, a_, b_, sum_, {});
      const double seconds = seconds_since(start);
      if (round == 1 || (round > 1 && seconds < shortest)) shortest = seconds;
    }
    return shortest;
  }

 private:
  std::vector<float> memory_;
  Tensor a_, b_, c_, sum_;
};

}  // namespace

bool bfloat16_matmul_pays(const CpuOptions& cpu) {
  if (cpu.bodies != Bodies::fast) return false;
  constexpr int64_t kSize = 256;
  CpuOptions timed = cpu;
  timed.bfloat16_matmul = true;
  try {
    const double seconds_bfloat16 = TimedProducts(DType::bfloat16, kSize).seconds_of_a_round(timed);
    const double seconds_float32 = TimedProducts(DType::float32, kSize).seconds_of_a_round(timed);
    return seconds_bfloat16 < seconds_float32;
  } catch (const std::exception&) {
    return false;  // the library has no bfloat16 product for this processor
  }
}

bool has_bfloat16_products() { return fast::tile_products_available(); }

bool bfloat16_tiles_pay(const CpuOptions& cpu) {
  if (cpu.bodies != Bodies::fast || !fast::tile_products_available()) return false;
  constexpr int64_t kRows = 128, kColumns = 256, kDepth = 64;  // one tile of attention
  const std::vector<bfloat16> a(kRows * kDepth);
  const std::vector<uint32_t> b(kDepth / 2 * kColumns);
  const std::vector<float> wide_a(kRows * kDepth, 1.0f), wide_b(kDepth * kColumns, 1.0f);
  std::vector<float> c(kRows * kColumns);
  const fast::LibraryThreads one(1);
  double shortest[2] = {};
  for (int round = 0; round < 8; ++round) {
    for (const int kind : {0, 1}) {
      const auto start = Clock::now();
      if (kind == 0) {
        fast::tile_product(kRows, kColumns, kDepth / 2, fast::rows_of(a.data(), kDepth), b.data(), kColumns, false,
                           c.data(), kColumns);
      } else {
        fast::product_float32(kRows, kColumns, kDepth, wide_a.data(), kDepth, false, wide_b.data(), kColumns, false,
                              false, c.data(), kColumns);
      }
      const double seconds = seconds_since(start);
      if (round == 1 || (round > 1 && seconds < shortest[kind])) shortest[kind] = seconds;
    }
  }
  return shortest[0] < shortest[1];
}

double measure_matmul_peak(const CpuOptions& cpu, DType dtype) {
  constexpr int64_t kSize = 512;
  constexpr double kSeconds = 0.05;
  TimedProducts products(dtype, kSize);
  try {
    products.forward(cpu);
    const auto start = Clock::now();
    int64_t count = 0;
    double seconds = 0;
    while (seconds < kSeconds) {
      products.forward(cpu);
      count += 1;
      seconds = seconds_since(start);
    }
    return static_cast<double>(count * 2 * kSize * kSize * kSize) / seconds;
  } catch (const std::exception&) {
    return 0;  // no such product on this processor
  }
}

double measure_copy_bandwidth(const CpuOptions& cpu) {
  constexpr int64_t kRows = 8192, kColumns = 4096;
  const auto memory = std::make_unique<float[]>(2 * kRows * kColumns);
  const Tensor from(memory.get(), DType::float32, {kRows, kColumns}, DeviceKind::cpu);
  const Tensor to(memory.get() + kRows * kColumns, DType::float32, {kRows, kColumns}, DeviceKind::cpu);
  double shortest = 0;
  for (int round = 0; round < 4; ++round) {
    const auto start = Clock::now();
    fast::copy(cpu, from, to);
    const double seconds = seconds_since(start);
    if (round == 1 || (round > 1 && seconds < shortest)) shortest = seconds;
  }
  return static_cast<double>(from.bytes() + to.bytes()) / shortest;
}

}  // namespace shiftron
