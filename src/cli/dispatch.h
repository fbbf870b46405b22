// Finds a subcommand in a table, with help at every level.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace shiftron::cli {

// Runs the command that `arguments` begin with and returns its exit code. "--help" after a complete command is passed
// to the command. Throws Error(bad_input) for an unknown command, with the nearest one.
int dispatch(const std::vector<Command>& commands, const std::vector<std::string>& arguments);

}  // namespace shiftron::cli
