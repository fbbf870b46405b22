// Masters in two halves on the CPU.
#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"

namespace shiftron::fast {
namespace {

SHIFTRON_CLONES void split_elements(int64_t count, const float* master, bfloat16* weight, uint16_t* rest) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    weight[i] = weight_half(master[i]);
    rest[i] = rest_half(master[i]);
  }
}
SHIFTRON_CLONES void join_elements(int64_t count, const bfloat16* weight, const uint16_t* rest, float* master) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) master[i] = join_halves(weight[i], rest[i]);
}

constexpr int64_t kBlock = 1 << 14;  // elements

}  // namespace

void split_master(const CpuOptions& cpu, ConstTensor master, Tensor weight, Tensor rest) {
  const auto* p = master.data<float>();
  auto* w = weight.data<bfloat16>();
  auto* r = rest.data<uint16_t>();
  parallel_blocks(cpu.threads, master.count(), kBlock,
                  [&](int64_t begin, int64_t end) { split_elements(end - begin, p + begin, w + begin, r + begin); });
}

void join_master(const CpuOptions& cpu, ConstTensor weight, ConstTensor rest, Tensor master) {
  const auto* w = weight.data<bfloat16>();
  const auto* r = rest.data<uint16_t>();
  auto* p = master.data<float>();
  parallel_blocks(cpu.threads, master.count(), kBlock,
                  [&](int64_t begin, int64_t end) { join_elements(end - begin, w + begin, r + begin, p + begin); });
}

}  // namespace shiftron::fast
