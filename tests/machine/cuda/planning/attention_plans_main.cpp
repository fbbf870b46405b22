// Whether the real cuDNN plans attention as it is built here, for an H100 that is only described.
#include <cstdio>
#include <cstdlib>
#include "kernels/attention_graph_cuda.h"
#include "core/check.h"
using namespace shiftron::cuda;
constexpr const char* kH100 = R"({"deviceVer":900,"driverVer":13000,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":132,
"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,
"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":85000000000,
"smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,"deviceName":"NVIDIA H100"})";
int main(int argc, char** argv) {
  int64_t B = 8, S = 2048, H = 16, K = 16, D = 128;
  if (argc > 1) B = atoi(argv[1]);
  if (argc > 2) S = atoi(argv[2]);
  if (argc > 3) H = atoi(argv[3]);
  if (argc > 4) K = atoi(argv[4]);
  if (argc > 5) D = atoi(argv[5]);
  int64_t qkv = (H + 2 * K) * D;
  AttentionProblem p{.samples = B, .length = S, .heads = H, .kv_heads = K, .head_dim = D, .q = {qkv, D}, .k = {qkv, D}, .v = {qkv, D}, .out = {H * D, D}, .d_out = {H * D, D}, .d_q = {qkv, D}, .d_k = {qkv, D}, .d_v = {qkv, D}, .statistics = B * S};
  for (auto pass : {AttentionPass::forward, AttentionPass::backward}) {
    p.pass = pass;
    try {
      AttentionPlan plan(p, kH100);
      printf("%s: workspace %ld\n", p.text().c_str(), (long)plan.workspace());
    } catch (const shiftron::Error& e) {
      printf("%s\n", e.what());
    }
  }
}
