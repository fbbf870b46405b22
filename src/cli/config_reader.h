// Reads a run's configuration from configuration files and a command line.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"
#include "config/run_config.h"

namespace shiftron::cli {

// `own` options of a command, --config, and every key of the configuration.
std::vector<CommandOption> with_configuration(const std::vector<CommandOption>& own);

// The configuration that `line`, read with with_configuration(), gives: later --config files override earlier ones, the
// command line overrides all files, and all override `base` (a checkpoint's configuration). Does not throw for faults
// of the user: those of the line, unknown keys, unreadable values and missing files are collected in reading_faults.
// Call validate() before use.
RunConfig read_config(const CommandLine& line, const RunConfig& base = {});

// A command line with its configuration.
struct ParsedConfig : CommandLine {
  RunConfig config;
};
ParsedConfig parse_config(const std::vector<std::string>& words, const std::vector<CommandOption>& own = {});

// The configuration that the text of a file (to_config_text) states; `source` names it in messages.
RunConfig read_config_text(const std::string& text, const std::string& source);

}  // namespace shiftron::cli
