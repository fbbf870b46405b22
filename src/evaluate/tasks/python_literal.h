// Texts that Python reads as lists of numbers.
#pragma once

#include <string>
#include <string_view>

namespace shiftron::python {

// str() of what the harness makes of a target: a text from [ to ] that is a list of numbers, lists and tuples in
// Python's syntax is written as Python writes that list ("[-2,7.50]" becomes "[-2, 7.5]"); any other text stays.
std::string target_text(std::string_view target);

}  // namespace shiftron::python
