// Strict UTF-8: which bytes form a character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/foreign_text.h"

namespace shiftron {

// Bytes of the byte order mark at the start of `text`: 3, or 0.
inline size_t byte_order_mark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
}

// U+2581, which SentencePiece writes for a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

bool is_utf8(std::string_view text);
void append_utf8(std::string& text, char32_t code_point);
// Bytes at the end of `text` that begin a character and do not finish it: 0 to 3.
size_t unfinished_bytes(std::string_view text);
// Number of bytes that no text has: NUL, and those that belong to no character.
uint64_t count_foreign_bytes(std::string_view text);

}  // namespace shiftron
