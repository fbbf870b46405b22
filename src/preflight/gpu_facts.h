// What the driver's nvidia-smi reports about a rank's GPU, and which GPUs of a job differ from the others.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace shiftron {

// By nvidia-smi's names: "power.limit" is "700.00 W". Unknown values are left out.
using GpuFacts = std::map<std::string, std::string>;

inline constexpr const char* kMemoryErrors = "ecc.errors.uncorrected.volatile.total";

// Facts of the GPU at this bus address; empty if there is no nvidia-smi or it fails.
GpuFacts facts_of_gpu(const std::string& address);
// Parses the output of `nvidia-smi --query-gpu=… --format=csv,noheader`, in the order of facts_of_gpu(), and of
// `nvidia-smi nvlink --status`.
GpuFacts gpu_facts(const std::string& query, const std::string& links);

struct RankGpu {
  std::string host;
  int local_rank = 0;
  GpuFacts facts{};
};
// One line for the user about a host.
struct GpuRemark {
  std::string host, what;
};
// GPUs whose values differ from most, one line per host, fact and value; memory errors are not compared.
std::vector<GpuRemark> odd_gpus(const std::vector<RankGpu>& gpus);
// GPUs whose memory has had uncorrectable errors since their driver started.
std::vector<GpuRemark> gpus_with_errors(const std::vector<RankGpu>& gpus);

}  // namespace shiftron
