// Measures the rates of this processor at start.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "kernels/bodies.h"

namespace shiftron {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Three square matrices of ones in their own memory, outside of every ledger.
class TimedProducts {
 public:
  TimedProducts(DType dtype, int64_t size)
      : memory_(static_cast<size_t>(3 * size * size * size_of(DType::float32)) / sizeof(float), 0.0f),
        a_(memory_.data(), dtype, {size, size}, DeviceKind::cpu),
        b_(memory_.data() + size * size, dtype, {size, size}, DeviceKind::cpu),
        c_(memory_.data() + 2 * size * size, dtype, {size, size}, DeviceKind::cpu) {}
  // Returns the library's own buffers, megabytes that no step uses, to the system.
  ~TimedProducts() { malloc_trim(0); }
  TimedProducts(const TimedProducts&) = delete;
  TimedProducts& operator=(const TimedProducts&) = delete;

  void forward(const CpuOptions& cpu) {
    cpu.bodies == Bodies::fast&& a_.dtype() != DType::float64 ? fast::matmul_forward(cpu, a_, b_, c_, {})
                                                              : specification::matmul_forward(cpu, a_, b_, c_, {});
  }

 private:
  std::vector<float> memory_;
  Tensor a_, b_, c_;
};

}  // namespace

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
