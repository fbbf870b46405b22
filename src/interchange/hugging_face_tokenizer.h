// The tokenizer as files for Hugging Face's libraries.
#pragma once

#include <map>
#include <string>

#include "tokenizer/tokenizer.h"

namespace shiftron {

// File name → bytes: tokenizer.json for tokenizers ≥ 0.20, tokenizer_config.json for transformers ≥ 5. They give the
// numbers of Tokenizer::encode for every text in UTF-8, except for: lines of more than 64 KiB, which encode() cuts;
// runs of characters that a BPE model could join to one piece in several places at once; equally good cuts of a unigram
// model, and its user-defined pieces if others overlap them. They too treat names of control tokens as text. Pieces
// that encode() never gives keep their number there but occur in no text. Throws Error(bad_input), naming the piece,
// for what tokenizer.json cannot express: another kind of model, unused pieces that take part in joins, control tokens
// of one character, pieces that are not UTF-8, two of the same text. A tokenizer that came as tokenizer.json keeps that
// file's bytes; its tokenizer_config.json states what begins and ends a document.
std::map<std::string, std::string> hugging_face_tokenizer(const Tokenizer& tokenizer);

// tokenizer_config.json for a tokenizer.model that tokenizer.json cannot express: it makes transformers refuse to read
// the model, from which it would make other numbers.
std::string refusing_tokenizer_config();

}  // namespace shiftron
