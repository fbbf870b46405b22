// Reads a configuration from settings and writes it as text and JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace shiftron {

// One key with its text.
struct Setting {
  std::string key;  // "model.hidden"
  std::string text;
  Origin origin;
};

inline constexpr uint64_t kLargestConfiguration = uint64_t{16} << 20;  // bytes of a file

// Applies one level (a file, the command line) over `config`; a list replaces that of weaker levels, and repeats add up
// within the level. Unknown keys and unreadable values go to config.reading_faults. `repeats_win`: a scalar key given
// twice takes the last value (command line), otherwise it is a fault (file). Call with the weakest level first.
void apply_level(RunConfig& config, const std::vector<Setting>& settings, bool repeats_win = false);

// Fills in the values that follow from others (model.kv_heads, model.head_dim). Call after the last level.
void resolve(RunConfig& config);

// A configuration file that reads back to the same values; required keys without a value are left out.
std::string to_config_text(const RunConfig& config);
// {"model": {"layers": 12, ...}, ...} with the same keys, and back; from_json throws Error(bad_input).
std::string to_json(const RunConfig& config);
RunConfig config_from_json(const std::string& json, const std::string& source = "json");
// The text whose hash identifies a run: "key=text" lines of the keys that may not differ on resume.
std::string hash_input(const RunConfig& config);

}  // namespace shiftron
