// Whether the real cuDNN plans attention as the backend builds it, for GPUs that are only described, and whether the
// planned scratch is enough: attention_plans DIRECTORY, a folder of configurations. Runs with the driver of
// make_driver.py, on any machine, and prints a table.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "kernels/attention_engine_cuda.h"
#include "kernels/scratch.h"
#include "shipped_attention.h"

namespace shiftron {
namespace {

using cuda::AttentionPlan;
using cuda::AttentionTarget;

struct Gpu {
  const char* name;
  int architecture;
  int shared_memory;  // bytes that a block can have
  int multiprocessors;
  bool serves_documents;   // in backward too; else that is left to own kernels
  bool repeats_documents;  // the same of the deterministic backward
};
constexpr Gpu kGpus[] = {{"A100", 800, 166912, 108, false, false},
                         {"H100", 900, 232448, 132, true, true},
                         {"B200", 1000, 232448, 148, true, false}};
constexpr const Gpu& kH100 = kGpus[1];

// Of the other numbers all have an H100's.
AttentionTarget described(const Gpu& gpu) {
  const auto field = [](const char* name, int value) {
    return "\"" + std::string(name) + "\":" + std::to_string(value) + ",";
  };
  return {nullptr,
          "{" + field("deviceVer", gpu.architecture) + field("maxSharedMemoryPerBlockOptin", gpu.shared_memory) +
              field("multiProcessorCount", gpu.multiprocessors) +
              R"("driverVer":13000,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
              R"("regsPerBlock":65536,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
              R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
              R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
              R"("supportCoopLaunch":1,"totalGlobalMem":85000000000,"smClockRateKHz":1980000,)"
              R"("memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,"deviceName":"described"})"};
}

std::vector<std::string> failures;

void fail(const AttentionProblem& problem, const Gpu& gpu, const std::string& what) {
  failures.push_back(std::string(gpu.name) + ": " + problem.text() + ": " + what);
}

// What is asked for of the scratch, as CudaAttention and its caller take it.
int64_t asked_bytes(const AttentionProblem& problem, const AttentionProblem& piece, int64_t workspace) {
  const int64_t starts = problem.documents ? problem.samples * problem.length * 4 + 256 : 0;
  return starts + cuda::PlanMemory(piece).bytes() + workspace;
}

// Bytes, or none where there is no engine. All that is offered must fit, since any of it may be the fastest; `planned`:
// the first of it is planned to the end, which takes half a second.
std::optional<int64_t> expect_fits(const AttentionProblem& problem, const Gpu& gpu, bool planned) {
  const AttentionProblem piece = cuda::attention_piece(problem);
  const int64_t there = 4 * cuda::attention_scratch(problem).count();
  const AttentionTarget target = described(gpu);
  const std::vector<AttentionChoice> offered = cuda::offered_engines(piece, target);
  if (offered.empty()) return {};
  int64_t most = 0;
  for (const AttentionChoice& choice : offered) {
    most = std::max(most, asked_bytes(problem, piece, choice.workspace));
  }
  if (most > there) fail(problem, gpu, std::to_string(most) + " bytes of " + std::to_string(there));
  if (planned) {
    const AttentionPlan plan(piece, target, offered.front());
    if (plan.workspace() != offered.front().workspace) {
      fail(problem, gpu,
           "a plan of " + std::to_string(plan.workspace()) + " bytes, " + std::to_string(offered.front().workspace) +
               " were said");
    }
  }
  return most;
}

std::string mebibytes(std::optional<int64_t> bytes) {
  if (!bytes) return "own kernels";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", static_cast<double>(*bytes) / (1 << 20));
  return text.data();
}

AttentionProblem backward_of(AttentionProblem problem) {
  problem.pass = AttentionPass::backward;
  problem.d_q = problem.d_k = problem.d_v = problem.q;
  problem.d_out = problem.out;
  return problem;
}

// One row of the table.
void expect_planned(const AttentionProblem& problem, bool first) {
  const bool backward = problem.pass == AttentionPass::backward;
  const std::string heads = std::to_string(problem.heads) + "/" + std::to_string(problem.kv_heads) + " of " +
                            std::to_string(problem.head_dim) + ", " + std::to_string(problem.samples) + " x " +
                            std::to_string(problem.length);
  const std::string form = std::string(backward ? "backward" : "forward") + (problem.documents ? ", documents" : "") +
                           (problem.deterministic ? ", deterministic" : "");
  const int64_t there = 4 * cuda::attention_scratch(problem).count();
  std::printf("  %-26s %-36s %10s", heads.c_str(), form.c_str(), mebibytes(there).c_str());
  for (const Gpu& gpu : kGpus) {
    const bool as_trained = problem.documents && !problem.deterministic;
    std::optional<int64_t> asked;
    try {
      asked = expect_fits(problem, gpu, first || (&gpu == &kH100 && as_trained));
    } catch (const Error& error) {
      fail(problem, gpu, error.what());
    }
    const bool needed =
        !backward || !problem.documents || (problem.deterministic ? gpu.repeats_documents : gpu.serves_documents);
    if (needed != asked.has_value()) fail(problem, gpu, needed ? "no engine" : "an engine, where none is stated");
    std::printf(" %11s", mebibytes(asked).c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

int expect_plans(const std::string& directory) {
  const auto shipped = shipped_attention(directory);
  CHECK(!shipped.empty(), directory, " has no configuration");
  std::printf("cuDNN %zu. MiB of scratch: stated for meta, and asked for on each GPU by the greediest engine\n",
              cudnnGetVersion());
  std::printf("  %-26s %-36s %10s", "heads of dim, samples", "pass", "stated");
  for (const Gpu& gpu : kGpus) std::printf(" %11s", gpu.name);
  std::printf("\n");
  bool first = true;
  for (const auto& [whole, names] : shipped) {
    std::printf("%s\n", names.c_str());
    for (const bool documents : {true, false}) {
      AttentionProblem forward = whole;
      forward.documents = documents;
      expect_planned(forward, first);
      AttentionProblem backward = backward_of(forward);
      expect_planned(backward, first);
      backward.deterministic = true;
      expect_planned(backward, first);
    }
    first = false;
  }
  // It does not say yes to everything.
  AttentionProblem odd = shipped.begin()->first;
  odd.head_dim = 7;
  try {
    if (!cuda::offered_engines(odd, described(kH100)).empty()) fail(odd, kH100, "an engine for a head_dim of 7");
  } catch (const Error&) {
  }
  std::printf("%zu shapes, %zu failures\n", shipped.size(), failures.size());
  for (const std::string& failure : failures) std::printf("FAILED: %s\n", failure.c_str());
  return failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace shiftron

int main(int count, char** words) {
  try {
    CHECK(count == 2, "attention_plans DIRECTORY");
    return shiftron::expect_plans(words[1]);
  } catch (const shiftron::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
