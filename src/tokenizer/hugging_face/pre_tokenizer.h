// "pre_tokenizer" of tokenizer.json: cuts a normalised text into words, each of which the model encodes on its own.
#pragma once

#include <memory>

#include "tokenizer/hugging_face/json_part.h"
#include "tokenizer/hugging_face/text_piece.h"

namespace shiftron {

// Read-only after construction; may be used from several threads.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Gives the pieces to `take` from left to right. Their texts are valid only during the call.
  virtual void split(const TextPiece& text, const TakePiece& take) const = 0;
  // Whether the words that it gives are byte-level: each character stands for a byte.
  virtual bool is_byte_level() const { return false; }
  // For a pre-tokenizer that comes last: whether the model then gets the bytes themselves instead, which is faster.
  // Called once, before split().
  virtual bool give_bytes() { return false; }
};

// Null: none. Throws Error(bad_input) for a kind that is not supported. A further kind needs a class and a line in
// pre_tokenizer.cpp.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonPart& part);

}  // namespace shiftron
