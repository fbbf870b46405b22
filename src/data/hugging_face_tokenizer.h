// The tokenizer as files that Hugging Face's libraries read.
#pragma once

#include <map>
#include <string>

#include "data/tokenizer.h"

namespace shiftron {

// File name → bytes: tokenizer.json for tokenizers ≥ 0.20, tokenizer_config.json for transformers ≥ 5. They give the
// numbers of Tokenizer::encode for every text in UTF-8, but for: lines of more than 64 KiB, which encode() cuts; runs
// of characters that a BPE model could join to one piece in several places at once; equally good cuts of a unigram
// model, and its user-defined pieces where others overlap them. Names of control tokens are text to them too. Pieces
// that encode() never gives have their number there and no part in texts. Throws Error(bad_input), naming the piece,
// for what tokenizer.json cannot say: another kind of model, unused pieces that take part in joins, control tokens of
// one character, pieces without UTF-8, two of the same text.
std::map<std::string, std::string> hugging_face_tokenizer(const Tokenizer& tokenizer);

// tokenizer_config.json beside a tokenizer.model that tokenizer.json cannot say: transformers, which would make other
// numbers of the model, refuses to read it.
std::string refusing_tokenizer_config();

}  // namespace shiftron
