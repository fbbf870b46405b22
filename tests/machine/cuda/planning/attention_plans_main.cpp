// Whether cuDNN itself plans attention as the backend builds it, for GPUs that are only described, and whether scratch
// is enough for what it asks. Runs with the driver of make_driver.py, on any machine.
#include <cstdio>
#include <string>

#include "core/check.h"
#include "kernels/attention_graph_cuda.h"
#include "kernels/scratch.h"

namespace shiftron {
namespace {

using cuda::AttentionPass;
using cuda::AttentionPlan;
using cuda::AttentionProblem;

// `architecture`: 900 is an H100, whose other numbers all have.
std::string device(int architecture, int shared_memory) {
  return R"({"deviceVer":)" + std::to_string(architecture) + R"(,"maxSharedMemoryPerBlockOptin":)" +
         std::to_string(shared_memory) +
         R"(,"driverVer":13000,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
         R"("regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
         R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
         R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
         R"("supportCoopLaunch":1,"totalGlobalMem":85000000000,"smClockRateKHz":1980000,)"
         R"("memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,"deviceName":"described"})";
}

// As they lie in a model: q, k, v and their gradients side by side in rows of all three.
AttentionProblem problem(AttentionPass pass, int64_t samples, int64_t length, int64_t heads, int64_t kv_heads,
                         int64_t head_dim) {
  const cuda::HeadStrides beside{(heads + 2 * kv_heads) * head_dim, head_dim}, alone{heads * head_dim, head_dim};
  AttentionProblem made{.pass = pass, .samples = samples, .length = length, .heads = heads, .kv_heads = kv_heads};
  made.head_dim = head_dim;
  made.q = made.k = made.v = made.d_q = made.d_k = made.d_v = beside;
  made.out = made.d_out = alone;
  made.statistics = samples * length;
  return made;
}

// Bytes beside the operands, as CudaAttention takes them.
int64_t asked_bytes(const AttentionProblem& of, const AttentionPlan& plan) {
  const int64_t rows = of.samples * of.length;
  const int64_t sums = of.pass == AttentionPass::backward ? rows * of.heads * (of.head_dim + 1) : 0;
  return 4 * (rows + sums) + plan.workspace() + 4 * 256;
}

int failures = 0;

// `needed`: a refusal is a failure.
void expect_plan(int architecture, int shared_memory, const AttentionProblem& of, bool needed) {
  std::string said = "no plan, and own kernels serve";
  try {
    const AttentionPlan plan(of, device(architecture, shared_memory));
    const int64_t asked = asked_bytes(of, plan);
    const int64_t rows = of.samples * of.length;
    const int64_t there =
        4 * cuda::attention_scratch(rows, of.heads, of.kv_heads, of.head_dim, DType::bfloat16).count();
    said = "planned, " + std::to_string(asked) + " bytes of " + std::to_string(there);
    if (asked > there) {
      said += ": TOO LITTLE";
      ++failures;
    }
  } catch (const Error& error) {
    if (needed) {
      said = error.what();
      ++failures;
    }
  }
  std::printf("sm_%d %s: %s\n", architecture / 10, of.text().c_str(), said.c_str());
}

int expect_plans() {
  for (const AttentionPass pass : {AttentionPass::forward, AttentionPass::backward}) {
    const bool forward = pass == AttentionPass::forward;
    for (const int architecture : {900, 1000}) {
      expect_plan(architecture, 232448, problem(pass, 8, 2048, 16, 16, 128), true);
      expect_plan(architecture, 232448, problem(pass, 4, 4096, 20, 4, 128), true);
      expect_plan(architecture, 232448, problem(pass, 1, 12288, 12, 1, 128), true);
    }
    expect_plan(900, 232448, problem(pass, 3, 1000, 6, 2, 64), true);
    expect_plan(900, 232448, problem(pass, 1, 13, 3, 3, 8), true);
    for (const int architecture : {800, 1200}) {
      expect_plan(architecture, 101376, problem(pass, 4, 4096, 20, 4, 128), forward);
    }
  }
  // It does not say yes to everything.
  try {
    const AttentionPlan plan(problem(AttentionPass::forward, 1, 64, 2, 1, 7), device(900, 232448));
    std::printf("head_dim 7 is planned\n");
    ++failures;
  } catch (const Error&) {
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace shiftron

int main() {
  return shiftron::expect_plans();
}
