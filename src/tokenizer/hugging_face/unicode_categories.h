// Names of Unicode's general categories.
#pragma once

#include <string>
#include <string_view>

namespace shiftron {

// "L", "lowercase_letter" → "L", "Ll", as PCRE2 writes them; "" if it is none. Case, blanks, _ and - do not matter.
std::string general_category(std::string_view name);

}  // namespace shiftron
