// Numbers and JSON as Python writes them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace shiftron::python {

// repr(number): the shortest digits that read back as the same number.
std::string repr(double number);

// json.dumps(value, indent=2, ensure_ascii=False)
std::string json_text(const nlohmann::ordered_json& value);

// json.loads(text), except that NaN, Infinity and -Infinity, which json.dumps() writes, become null. Throws what
// Json::parse() throws.
nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace shiftron::python
