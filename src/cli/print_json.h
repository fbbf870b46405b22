// How commands print JSON.
#pragma once

#include <iostream>
#include <nlohmann/json.hpp>

#include "core/foreign_text.h"

namespace shiftron::cli {

// On stdout, one line per value, or all on one line if `indent` is -1. Bytes of paths that are not UTF-8 are replaced,
// because JSON cannot hold them; what controls a terminal is escaped.
inline void print_json(const nlohmann::ordered_json& json, int indent = 1) {
  std::cout << printable_json(json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace)) << "\n";
}

}  // namespace shiftron::cli
