// `shiftron generate`: its options, the prompts that it reads and the continuations that it writes.
#pragma once

#include <vector>

#include "cli/command_line.h"
#include "core/host.h"
#include "evaluate/checkpoint_model.h"
#include "parallel/host_communicator.h"

namespace shiftron::cli {

std::vector<CommandOption> generate_options();
// Adds to the line's faults: options that exclude each other or would do nothing.
void check_generate_options(CommandLine& line);
// All ranks call it; rank 0 reads the prompts and writes the continuations.
void run_prompts(const CommandLine& line, const CheckpointModel& model, HostCommunicator& world,
                 const HostShare& share);

}  // namespace shiftron::cli
