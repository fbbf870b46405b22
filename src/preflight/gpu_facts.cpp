// Runs nvidia-smi, which comes with the driver, and compares what it prints.
#include "preflight/gpu_facts.h"

#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <tuple>

namespace shiftron {
namespace {

constexpr std::array kQueried = {"name",          "driver_version",        "memory.total",
                                 "clocks.max.sm", "power.limit",           "ecc.mode.current",
                                 kMemoryErrors,   "pcie.link.gen.current", "pcie.link.width.current"};
constexpr const char* kLinks = "nvlink";

struct Close {
  void operator()(FILE* pipe) const { pclose(pipe); }
};

// What a command prints to stdout; "" if it fails.
std::string output_of(const std::string& command) {
  std::unique_ptr<FILE, Close> pipe(popen((command + " 2>/dev/null </dev/null").c_str(), "re"));
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 4096> piece{};
  for (size_t read = 1; read > 0; text.append(piece.data(), read))
    read = fread(piece.data(), 1, piece.size(), pipe.get());
  return pclose(pipe.release()) == 0 ? text : "";
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\n") + 1 - begin);
}

// "18 x 26.562 GB/s": the working links of lines such as "Link 0: 26.562 GB/s"; "" if there are none.
std::string links_of(const std::string& status) {
  std::map<std::string, int> rates;
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.rfind(": ");
    if (line.find("Link ") == std::string::npos || colon == std::string::npos || !line.ends_with("GB/s")) continue;
    ++rates[trimmed(line.substr(colon + 1))];
  }
  std::string text;
  for (const auto& [rate, count] : rates) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, rate);
  return text;
}

}  // namespace

GpuFacts gpu_facts(const std::string& query, const std::string& links) {
  GpuFacts facts;
  std::istringstream values(query.substr(0, query.find('\n')));
  std::string value;
  for (size_t i = 0; i < kQueried.size() && std::getline(values, value, ','); ++i) {
    value = trimmed(value);
    if (!value.empty() && value.front() != '[') facts[kQueried[i]] = value;  // "[N/A]", "[Not Supported]"
  }
  if (const std::string text = links_of(links); !text.empty()) facts[kLinks] = text;
  return facts;
}

GpuFacts facts_of_gpu(const std::string& address) {
  if (address.empty() || address.find_first_not_of("0123456789abcdefABCDEF:.") != std::string::npos) return {};
  const std::string of = " --id=" + address;
  return gpu_facts(
      output_of(fmt::format("nvidia-smi{} --query-gpu={} --format=csv,noheader", of, fmt::join(kQueried, ","))),
      output_of("nvidia-smi nvlink --status" + of));
}

std::vector<GpuRemark> odd_gpus(const std::vector<RankGpu>& gpus) {
  std::map<std::string, std::map<std::string, int>> counts;  // by fact and value
  for (const RankGpu& gpu : gpus) {
    for (const auto& [fact, value] : gpu.facts) ++counts[fact][value];
  }
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<int>> odd;  // host, fact, value: ranks
  for (const RankGpu& gpu : gpus) {
    for (const auto& [fact, value] : gpu.facts) {
      const auto& of_fact = counts.at(fact);
      const auto most = std::ranges::max_element(of_fact, {}, [](const auto& entry) { return entry.second; });
      if (fact != kMemoryErrors && value != most->first) odd[{gpu.host, fact, value}].push_back(gpu.local_rank);
    }
  }
  std::vector<GpuRemark> remarks;
  for (const auto& [where, ranks] : odd) {
    const auto& [host, fact, value] = where;
    const auto& of_fact = counts.at(fact);
    const auto most = std::ranges::max_element(of_fact, {}, [](const auto& entry) { return entry.second; });
    const bool is_odd = 2 * most->second > static_cast<int>(gpus.size());
    remarks.push_back(
        {host, fmt::format("the GPU{} of its rank{} {}: {} is {}, {} have {} (nvidia-smi)",
                           ranks.size() == 1 ? "" : "s", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), fact,
                           value, is_odd ? "most" : "others", most->first)});
  }
  return remarks;
}

std::vector<GpuRemark> gpus_with_errors(const std::vector<RankGpu>& gpus) {
  std::vector<GpuRemark> remarks;
  for (const RankGpu& gpu : gpus) {
    const auto errors = gpu.facts.find(kMemoryErrors);
    if (errors == gpu.facts.end() || std::strtoll(errors->second.c_str(), nullptr, 10) <= 0) continue;
    remarks.push_back({gpu.host, fmt::format("the GPU of its rank {} has had {} uncorrectable ECC memory errors since "
                                             "its driver was loaded: reset or replace the GPU (nvidia-smi -q -d ECC)",
                                             gpu.local_rank, errors->second)});
  }
  return remarks;
}

}  // namespace shiftron
