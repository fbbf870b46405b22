// Special tokens that stand only in the vocabulary of a model, not among the added tokens.
#pragma once

#include <optional>
#include <string>

#include "tokenizer/hugging_face/added_tokens.h"
#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

// The piece of "model" as a special token, if it is only a name that no text becomes: of several characters, and in a
// bpe model no merge makes it, in a unigram model no score is lower. `shiftron tokenizer export` writes control tokens
// this way. Nothing if there is no such piece.
std::optional<AddedToken> named_token(const JsonPart& model, const std::string& text);
std::optional<AddedToken> named_token(const JsonPart& model, int32_t id);

}  // namespace shiftron
