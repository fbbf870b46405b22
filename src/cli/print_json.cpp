// JSON as text that a terminal may show.
#include "cli/print_json.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "core/foreign_text.h"

namespace shiftron::cli {

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return printable_json(json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_json(const nlohmann::ordered_json& json, int indent) {
  std::cout << json_text(json, indent) << "\n";
}

}  // namespace shiftron::cli
