// Parses a line of JSONL.
#include "data/json_line.h"

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/foreign_text.h"
#include "core/json_reason.h"

namespace shiftron {

nlohmann::json json_object(std::string_view line, const std::string& where) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    throw_bad_input(where, ": not JSON: ", printable(json_reason(error)));
  }
  if (!object.is_object()) throw_bad_input(where, ": a JSON ", object.type_name(), ", not an object");
  return object;
}

}  // namespace shiftron
