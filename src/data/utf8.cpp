// The table of well-formed sequences of the Unicode standard (table 3-7).
#include "data/utf8.h"

namespace shiftron {

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t first = byte(0);
  const uint8_t second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  if (first < 0xE0) return continues(1) ? 2 : 0;
  const uint8_t lowest = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const uint8_t highest = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (second < lowest || second > highest || !continues(2)) return 0;
  if (first < 0xF0) return 3;
  return continues(3) ? 4 : 0;
}

uint64_t count_foreign_bytes(std::string_view text) {
  uint64_t foreign = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = static_cast<uint8_t>(text[at]) < 0x80 ? 1 : utf8_length(text.substr(at));
    if (length == 0 || text[at] == '\0') ++foreign;
    at += length == 0 ? 1 : length;
  }
  return foreign;
}

bool is_utf8(std::string_view text) {
  for (size_t length; !text.empty(); text.remove_prefix(length)) {
    length = utf8_length(text);
    if (length == 0) return false;
  }
  return true;
}

std::string printable(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  constexpr size_t kLongest = 400;
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    if (at >= kLongest) return shown + "… (" + std::to_string(text.size()) + " bytes)";
    const size_t length = utf8_length(text.substr(at));
    const auto byte = static_cast<uint8_t>(text[at]);
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
      ++at;
    } else {
      shown += text.substr(at, length);
      at += length;
    }
  }
  return shown;
}

}  // namespace shiftron
