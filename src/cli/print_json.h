// How commands print JSON.
#pragma once

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/foreign_text.h"

namespace shiftron::cli {

// One line per value, or all on one line if `indent` is -1. Bytes that are not UTF-8 are replaced, because JSON cannot
// hold them; what controls a terminal is escaped.
inline std::string json_text(const nlohmann::ordered_json& json, int indent = -1) {
  return printable_json(json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

// On stdout.
inline void print_json(const nlohmann::ordered_json& json, int indent = 1) {
  std::cout << json_text(json, indent) << "\n";
}

}  // namespace shiftron::cli
