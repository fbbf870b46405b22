// Looks at whole characters from either end.
#include "tokenizer/python_space.h"

#include <cstdint>

#include "core/foreign_text.h"
#include "tokenizer/hugging_face/code_points.h"

namespace shiftron::python {

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t bytes = utf8_length(text.substr(at));
    if (bytes == 0 || !is_space(first_code_point(text.substr(at, bytes)).value)) break;
    at += bytes;
  }
  return at;
}

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (utf8_length(text.substr(begin, end - begin)) != end - begin) break;
    if (!is_space(first_code_point(text.substr(begin, end - begin)).value)) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace shiftron::python
