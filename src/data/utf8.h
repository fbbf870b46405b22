// UTF-8, strictly: which bytes form a character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shiftron {

// Bytes of the character at the start of `text`; 0 where there is no valid one (overlong forms, surrogates and
// numbers above U+10FFFF are not valid).
size_t utf8_length(std::string_view text);

}  // namespace shiftron
