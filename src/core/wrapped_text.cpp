// Breaks lines at blanks.
#include "core/wrapped_text.h"

#include <algorithm>

namespace shiftron {

size_t columns(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

std::string wrapped(const std::string& text, size_t indent) {
  std::string lines;
  size_t at = indent, begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (at > indent && at + 1 + columns(word) > kTextWidth) {
      lines += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (at > indent) {
      lines += ' ';
      ++at;
    }
    lines += word;
    at += columns(word);
  }
  return lines + "\n";
}

}  // namespace shiftron
