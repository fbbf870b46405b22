// Says what a directory holds if a command expects a checkpoint step and it is none.
#pragma once

#include <string>

namespace shiftron {

// For commands that take a step: throws Error(bad_input) if `directory` is no directory, or if it is not a step but a
// run or its folder of checkpoints (the message names its newest step) or a model of another program.
void require_step_directory(const std::string& directory);

}  // namespace shiftron
