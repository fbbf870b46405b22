// "decoder" of tokenizer.json: turns pieces back into text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

struct DecodedText {
  std::vector<std::string> parts{};  // together the text; a part per token at first
  bool is_fused = false;             // it has become one part
  bool is_whole = true;              // false: from the middle of a text, so it has neither
                                     // beginning nor end
};

// Read-only after construction; may be used from several threads.
class PieceDecoder {
 public:
  virtual ~PieceDecoder() = default;
  virtual void apply(DecodedText& text) const = 0;
};

// Null (no decoder): spaces between the pieces. Throws Error(bad_input) for a kind that is not supported. A further
// kind needs a class and a line in decoder.cpp.
std::unique_ptr<const PieceDecoder> read_decoder(const JsonPart& part);

}  // namespace shiftron
