// UTF-8, strictly: which bytes form a character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shiftron {

// Bytes of the character at the start of `text`; 0 where there is no valid one (overlong forms, surrogates and
// numbers above U+10FFFF are not valid).
size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);
// Bytes that no text has: NUL, and those that belong to no character.
uint64_t count_foreign_bytes(std::string_view text);

// For messages: what is no UTF-8, and control characters, as \xFF.
std::string printable(std::string_view text);

}  // namespace shiftron
