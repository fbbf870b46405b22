// Targets that Python reads as lists of numbers.
#pragma once

#include <string>
#include <string_view>

namespace shiftron::python {

// str() of the value that the harness makes of a target. A text in [ ] that is a Python list of numbers, lists and
// tuples becomes what Python prints for that list ("[-2,7.50]" becomes "[-2, 7.5]"); any other text stays.
std::string target_text(std::string_view target);

}  // namespace shiftron::python
