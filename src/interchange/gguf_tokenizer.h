// The tokenizer in the form of llama.cpp's vocabularies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace shiftron {

// tokenizer.ggml.model, tokens, scores, token_type and the tokens with a role of their own.
struct GgufTokenizer {
  std::string model;  // "llama" for a bpe model, "t5" for a unigram model
  std::vector<std::string> pieces;
  std::vector<float> scores;
  std::vector<int32_t> types;  // numbers of sentencepiece_model.proto, which llama.cpp uses too
  uint32_t unknown = 0, end_of_document = 0;
  std::string note;  // differences of every model of this kind; empty: none known
};

// For use without adding a space in front or tokens at the ends. llama.cpp then gives the numbers of Tokenizer::encode
// for texts in UTF-8, except for: U+2581, which it reads as a space; lines of more than 64 KiB, which encode() cuts;
// names of bytes ("<0x41>"), if pieces join to one; user-defined pieces that overlap. With a unigram model also for
// characters without a piece, which it writes as the unknown token, and for equally good cuts.
// If pieces could join to a control token's name, so that text would become the token, it is named [control N]. A piece
// that llama.cpp would give but encode() never does is named [unused N]. Throws Error(bad_input), naming the piece: two
// of the same text, no unknown token, what read_sentencepiece_model() refuses.
GgufTokenizer gguf_tokenizer(const Tokenizer& tokenizer);

}  // namespace shiftron
