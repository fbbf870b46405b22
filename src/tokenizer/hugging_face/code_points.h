// Characters of UTF-8 text, and the classes of them that the package `tokenizers` uses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/utf8.h"

namespace shiftron {

struct CodePoint {
  char32_t value;
  size_t bytes;
};

// The first character of valid UTF-8 that is not empty.
inline CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1FU) << 6 | (byte(1) & 0x3FU), 2};
  if (first < 0xF0) return {(first & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
  return {(first & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU), 4};
}
// The last one.
CodePoint last_code_point(std::string_view text);

std::string utf8_of(char32_t code_point);

}  // namespace shiftron
