// See the header.
#include "tokenizer/hugging_face/byte_level.h"

#include "tokenizer/hugging_face/code_points.h"

namespace shiftron {

ByteLevelAlphabet::ByteLevelAlphabet() {
  bytes_.fill(-1);
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    const char32_t character = is_itself ? byte : next++;
    characters_[byte] = utf8_of(character);
    bytes_[character] = static_cast<int16_t>(byte);
  }
}

void ByteLevelAlphabet::append_encoded(std::string& text, std::string_view bytes) const {
  for (const char byte : bytes) text += characters_[static_cast<uint8_t>(byte)];
}

std::optional<std::string> ByteLevelAlphabet::decoded(std::string_view text) const {
  std::string bytes;
  while (!text.empty()) {
    const CodePoint character = first_code_point(text);
    if (character.value >= bytes_.size() || bytes_[character.value] < 0) return std::nullopt;
    bytes += static_cast<char>(bytes_[character.value]);
    text.remove_prefix(character.bytes);
  }
  return bytes;
}

}  // namespace shiftron
