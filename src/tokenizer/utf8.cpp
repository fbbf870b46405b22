// Checks whole texts by utf8_length().
#include "tokenizer/utf8.h"

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

bool is_utf8(std::string_view text) {
  for (size_t length; !text.empty(); text.remove_prefix(length)) {
    length = utf8_length(text);
    if (length == 0) return false;
  }
  return true;
}

}  // namespace shiftron
