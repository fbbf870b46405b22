// The tokenizer as llama.cpp's vocabularies state it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace shiftron {

// tokenizer.ggml.model, tokens, scores, token_type and the tokens that have a part of their own.
struct GgufTokenizer {
  std::string model;  // "llama" of a bpe model, "t5" of a unigram model
  std::vector<std::string> pieces;
  std::vector<float> scores;
  std::vector<int32_t> types;  // numbers of sentencepiece_model.proto, which llama.cpp took over
  uint32_t unknown = 0, end_of_document = 0;
  std::string note;  // what differs for every model of this kind; empty: nothing known
};

// No space is to be added in front, no token at the ends. llama.cpp then gives the numbers of Tokenizer::encode for
// texts in UTF-8, but for: U+2581, which it takes for a space; lines of more than 64 KiB, which encode() cuts; bytes'
// names ("<0x41>") where pieces join to one; user-defined pieces that overlap. With a unigram model also for characters
// without a piece, which it writes as the unknown token, and equally good cuts. A control token's name that pieces
// could join to, so that text would become the token, is written as [control N], what encode() never gives and
// llama.cpp would as [unused N]. Throws Error(bad_input), naming the piece: two of the same text, no unknown token,
// what read_sentencepiece_model() refuses.
GgufTokenizer gguf_tokenizer(const Tokenizer& tokenizer);

}  // namespace shiftron
