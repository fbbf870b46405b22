// `shiftron evaluate --tasks …`: the part of evaluate that runs benchmarks.
#pragma once

#include <vector>

#include "cli/command_line.h"
#include "core/host.h"
#include "evaluate/checkpoint_model.h"
#include "parallel/host_communicator.h"

namespace shiftron::cli {

std::vector<CommandOption> benchmark_options();
// Whether --data must be given: for a dataset to predict, and for tasks that look for their files there. Not for
// unknown tasks, which run_tasks() refuses.
bool needs_data(const CommandLine& line);
// Adds to the line's faults: options of benchmarks without benchmarks, benchmarks without an output.
void check_benchmark_options(CommandLine& line);

bool wants_task_list(const CommandLine& line);  // --tasks list
int list_tasks(const CommandLine& line);
// All ranks call it; rank 0 prints the table.
int run_tasks(const CommandLine& line, const CheckpointModel& model, HostCommunicator& world, const HostShare& share);

}  // namespace shiftron::cli
