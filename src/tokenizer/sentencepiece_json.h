// The pieces of a SentencePiece model as "model" of tokenizer.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tokenizer/sentencepiece_model.h"

namespace shiftron {

// Throws Error(bad_input), naming the piece: "… which tokenizer.json cannot represent".
[[noreturn]] void refuse_piece(const SentencePieceModel& model, size_t id, const char* why);

// "model" of tokenizer.json, for a model of the type bpe or unigram whose pieces are UTF-8 and differ from each other.
// `pre_tokenizer`: what must cut words there, so that names of control and byte tokens are not found in texts; null if
// nothing must. Throws Error(bad_input) if there is no unknown piece, or such a name cannot be cut.
nlohmann::json token_model_json(const SentencePieceModel& model, nlohmann::json& pre_tokenizer);

}  // namespace shiftron
