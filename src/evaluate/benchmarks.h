// A pass over benchmark tasks: items out of files, answers by the model on all ranks, values and report on rank 0.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/host.h"
#include "evaluate/checkpoint_model.h"
#include "evaluate/scorer.h"
#include "evaluate/tasks/benchmark_report.h"
#include "evaluate/tasks/task.h"
#include "parallel/host_communicator.h"

namespace shiftron {

struct BenchmarkOptions {
  std::vector<std::string> tasks{};  // as TaskRegistry::select() takes them
  std::string data{};                // directory of their files
  std::string output{};              // directory of reports, and of the journal until they are written
  TaskOptions task{};
  ScorerOptions scorer{};  // its journal and its names of requests are set here
};

struct BenchmarkOutcome {  // empty but on rank 0
  std::vector<ResultRow> rows{};
  std::string results_path{};
};

// Every rank of `world` calls it. A pass that was killed and is made again with the same options takes what was
// answered from the journal. Throws Error(bad_input) for tasks, files and items that cannot be evaluated.
BenchmarkOutcome run_benchmarks(const CheckpointModel& model, const BenchmarkOptions& options,
                                const std::string& code_version, HostCommunicator& world, const HostShare& share);

}  // namespace shiftron
