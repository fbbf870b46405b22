// What pre-tokenizers pass on to each other.
#pragma once

#include <functional>
#include <string_view>

namespace shiftron {

// Part of a text.
struct TextPiece {
  std::string_view text;   // valid UTF-8, never empty
  bool is_first = false;   // of the whole text
  bool continues = false;  // directly follows bytes that were set aside, so
                           // nothing may be put in front of it
};
using TakePiece = std::function<void(const TextPiece&)>;

}  // namespace shiftron
