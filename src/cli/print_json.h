// How commands print JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace shiftron::cli {

// One line per value, or all on one line if `indent` is -1. Bytes that are not UTF-8 are replaced, because JSON cannot
// hold them; what controls a terminal is escaped.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

// On stdout.
void print_json(const nlohmann::ordered_json& json, int indent = 1);

}  // namespace shiftron::cli
