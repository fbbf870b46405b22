// What `--help` prints: the list of commands, one command, and the whole command table as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/command.h"

namespace shiftron::cli {

// "data build"
std::string words_of(const Command& command);

// "shiftron data build --input FILE… --output DIR"
std::string usage_of(const Command& command);

// The list of commands; with `noun`, that noun's verbs.
std::string commands_help(const std::vector<Command>& commands, const std::string& noun = "");

// What a command does, its usage, its options and an example. Of the configuration keys only those in `main_keys`, or
// every key with `all_keys`.
std::string command_help(const Command& command, bool all_keys = false);

// Every configuration key, section by section; the values `required` and default are printed only with `defaults`.
std::string keys_help(bool defaults = true);

// Every command with its options, and every configuration key: `shiftron --help json`, from which man pages and shell
// completions are generated.
nlohmann::ordered_json help_json(const std::vector<Command>& commands);

}  // namespace shiftron::cli
