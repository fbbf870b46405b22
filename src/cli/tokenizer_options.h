// Options of commands that read a tokenizer: what its files leave open.
#pragma once

#include <vector>

#include "cli/command_line.h"
#include "tokenizer/tokenizer.h"

namespace shiftron::cli {

std::vector<CommandOption> tokenizer_options();
TokenizerChoice tokenizer_choice(const CommandLine& line);

}  // namespace shiftron::cli
