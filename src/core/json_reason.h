// What the JSON library says of a text, for a person.
#pragma once

#include <exception>
#include <string>

namespace shiftron {

// The message of an error of that library without the name of its exception, which stands before it in brackets.
std::string json_reason(const std::exception& error);

}  // namespace shiftron
