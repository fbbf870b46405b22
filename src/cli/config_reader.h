// Reads a run's configuration from the command line and configuration files, with the flags that a command adds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "train/run_config.h"

namespace shiftron::cli {

// An option of one command that is no key of the configuration.
struct ExtraOption {
  std::string name;        // "dry-run", without the dashes
  std::string value_name;  // "N"; empty = a flag
  std::string help;
};

// What the command line and the files say. Faults wait in config.reading_faults: call validate() before use.
struct ParsedConfig {
  RunConfig config;
  bool help = false;                                      // --help was given
  std::map<std::string, std::vector<std::string>> extra;  // values of the extra options that were given; flags: {""}

  bool has(const std::string& name) const { return extra.count(name) > 0; }
  // The last value given, or `otherwise`.
  std::string text(const std::string& name, const std::string& otherwise = "") const;
  // Throws Error(bad_input) where the value is no whole number of at least `minimum`.
  int64_t integer(const std::string& name, int64_t otherwise, int64_t minimum = 0) const;
};

// Later --config files win over earlier ones, the command line over all, both over `base` (a checkpoint's
// configuration). Throws nothing for faults of the user: unknown keys, unreadable values and missing files are all
// collected.
ParsedConfig read_config(const std::vector<std::string>& arguments, const std::vector<ExtraOption>& extra = {},
                         const RunConfig& base = {});

// The configuration that the text of a file (to_config_text) states; `source` names it in messages.
RunConfig read_config_text(const std::string& text, const std::string& source);

// `--help` of a command: usage, its own options, and every key of the configuration.
std::string config_help(const std::string& usage, const std::vector<ExtraOption>& extra = {});

}  // namespace shiftron::cli
