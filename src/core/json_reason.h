// Messages of the JSON library, for people.
#pragma once

#include <exception>
#include <string>

namespace shiftron {

// The message of an error of that library, without the exception's name in brackets at its start.
std::string json_reason(const std::exception& error);

}  // namespace shiftron
