// Checks whole texts by utf8_length().
#include "tokenizer/utf8.h"

#include <algorithm>

namespace shiftron {

uint64_t count_foreign_bytes(std::string_view text) {
  uint64_t foreign = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = static_cast<uint8_t>(text[at]) < 0x80 ? 1 : utf8_length(text.substr(at));
    if (length == 0 || text[at] == '\0') ++foreign;
    at += length == 0 ? 1 : length;
  }
  return foreign;
}

size_t unfinished_bytes(std::string_view text) {
  for (size_t last = 1; last <= std::min<size_t>(3, text.size()); ++last) {
    const auto byte = static_cast<uint8_t>(text[text.size() - last]);
    if ((byte & 0xC0) == 0x80) continue;  // not the first of a character
    const size_t length = byte < 0xC2 || byte > 0xF4 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return length > last ? last : 0;
  }
  return 0;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) return add(code_point);
  if (code_point < 0x800) {
    add(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      add(0xE0 | code_point >> 12);
    } else {
      add(0xF0 | code_point >> 18);
      add(0x80 | (code_point >> 12 & 0x3F));
    }
    add(0x80 | (code_point >> 6 & 0x3F));
  }
  add(0x80 | (code_point & 0x3F));
}

bool is_utf8(std::string_view text) {
  for (size_t length; !text.empty(); text.remove_prefix(length)) {
    length = utf8_length(text);
    if (length == 0) return false;
  }
  return true;
}

}  // namespace shiftron
