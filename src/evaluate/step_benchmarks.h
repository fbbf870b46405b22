// Benchmarks of a run on its way: [evaluation] tasks, asked of the weights that are being trained.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/host.h"
#include "core/log.h"
#include "parallel/host_communicator.h"
#include "train/step_evaluation.h"

namespace shiftron {

// Names that are no tasks; empty: none. Task files are read.
std::vector<std::string> find_task_faults(const RunConfig& config);

// Reads the tasks' items as a start does, which throws Error(bad_input) where they cannot be read.
void require_task_items(const RunConfig& config);

// Adds to `planned` what the tasks take beside training on such a rank; nothing where there are none. Their files need
// not be there.
void plan_step_benchmarks(const RunConfig& config, const ParallelLayout& layout, int rank, int threads,
                          Ledger& planned);

// Reads the tasks: every rank of `world` calls it, and keeps what is asked as tokens. All that is referred to outlives
// it. Reports go to RUN/evaluations/step-S.
std::unique_ptr<StepEvaluation> make_step_benchmarks(const RunConfig& config, const std::string& tokenizer_model,
                                                     const std::string& code_version, HostCommunicator& world,
                                                     const HostShare& share, Log& log);

}  // namespace shiftron
