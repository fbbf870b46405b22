// See the header.
#include "tokenizer/hugging_face/code_points.h"

namespace shiftron {

CodePoint last_code_point(std::string_view text) {
  size_t at = text.size() - 1;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return first_code_point(text.substr(at));
}

std::string utf8_of(char32_t code_point) {
  std::string text;
  append_utf8(text, code_point);
  return text;
}

}  // namespace shiftron
