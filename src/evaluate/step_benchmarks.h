// Benchmarks during training: the tasks of [evaluation], run on the current weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/host.h"
#include "core/log.h"
#include "parallel/host_communicator.h"
#include "train/step_evaluation.h"

namespace shiftron {

// Faults of the names in evaluation.tasks; empty if there are none. Reads task files.
std::vector<std::string> find_task_faults(const RunConfig& config);

// Reads the tasks' items as the start of a run does. Throws Error(bad_input) if they cannot be read.
void require_task_items(const RunConfig& config);

// Adds to `planned` the memory that the tasks need in addition to training on such a rank; nothing without tasks. The
// data files need not exist.
void plan_step_benchmarks(const RunConfig& config, const ParallelLayout& layout, int rank, int threads,
                          Ledger& planned);

// Reads the tasks and keeps their requests as tokens. Every rank of `world` calls it. All arguments passed by reference
// must outlive the result. Reports go to RUN/evaluations/step-S.
std::unique_ptr<StepEvaluation> make_step_benchmarks(const RunConfig& config, const StoredTokenizer& tokenizer,
                                                     const std::string& code_version, HostCommunicator& world,
                                                     const HostShare& share, Log& log);

}  // namespace shiftron
