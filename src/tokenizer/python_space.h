// White space as Python's str.isspace() and str.strip() see it, which chat templates and benchmark tasks rely on.
#pragma once

#include <cstddef>
#include <string_view>

namespace shiftron::python {

// str.isspace of one character.
bool is_space(char32_t character);
// Bytes of white space at the beginning and at the end of UTF-8 text, which str.lstrip() and str.rstrip() remove.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

}  // namespace shiftron::python
