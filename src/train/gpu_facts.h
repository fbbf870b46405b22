// What the driver's nvidia-smi says of a rank's GPU, and the GPUs of a job that are not like the others.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace shiftron {

// By nvidia-smi's names: "power.limit" is "700.00 W". What it does not know is left out.
using GpuFacts = std::map<std::string, std::string>;

inline constexpr const char* kMemoryErrors = "ecc.errors.uncorrected.volatile.total";

// Of the GPU at this address on the bus; empty where there is no nvidia-smi or it fails.
GpuFacts facts_of_gpu(const std::string& address);
// From the lines of `nvidia-smi --query-gpu=… --format=csv,noheader`, in the order of facts_of_gpu(), and of
// `nvidia-smi nvlink --status`.
GpuFacts gpu_facts(const std::string& query, const std::string& links);

struct RankGpu {
  std::string host;
  int local_rank = 0;
  GpuFacts facts{};
};
// A line for people about a host.
struct GpuRemark {
  std::string host, what;
};
// The GPUs that have other values than most, one line for each host, fact and value; errors of memory are not compared.
std::vector<GpuRemark> odd_gpus(const std::vector<RankGpu>& gpus);
// The GPUs whose memory has lost bits since their driver started.
std::vector<GpuRemark> gpus_with_errors(const std::vector<RankGpu>& gpus);

}  // namespace shiftron
