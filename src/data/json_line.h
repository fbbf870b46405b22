// A line of JSONL.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace shiftron {

// The object in the line; `where` names the line in messages. Throws Error(bad_input) if there is none.
nlohmann::json json_object(std::string_view line, const std::string& where);

}  // namespace shiftron
