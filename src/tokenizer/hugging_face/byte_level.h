// The alphabet of byte-level tokenizers: every byte is written as a character of its own, as GPT-2 does.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shiftron {

// Printable characters of Latin-1 stand for themselves, the other bytes for U+0100 and later ones in their order.
class ByteLevelAlphabet {
 public:
  ByteLevelAlphabet();
  void append_encoded(std::string& text, std::string_view bytes) const;
  // The bytes that the characters stand for; nothing if one of them stands for none.
  std::optional<std::string> decoded(std::string_view text) const;

 private:
  std::array<std::string, 256> characters_;
  std::array<int16_t, 0x180> bytes_;  // per character; -1: none
};

}  // namespace shiftron
