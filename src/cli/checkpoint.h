// What commands on checkpoints share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/command.h"
#include "core/tensor.h"

namespace shiftron::cli {

// The step that a command is given as its directory number `index`. Throws Error(bad_input) if it is not a step; for a
// run the message names the newest one.
std::string step_argument(const CommandLine& line, size_t index = 0);
nlohmann::ordered_json shape_json(const Shape& shape);  // a list

Command checkpoint_diff_command();

}  // namespace shiftron::cli
