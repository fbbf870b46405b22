// Trains a SentencePiece model whose tokens keep every text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shiftron {

struct SentencePieceTraining {
  std::string kind = "bpe";            // or "unigram"
  int64_t vocab = 0;                   // tokens, including kFixedPieces
  double character_coverage = 0.9995;  // share of the characters that get a token; others are written as bytes
  bool quiet = true;                   // suppresses the library's own log
};

constexpr int64_t kFixedPieces = 259;      // unknown, end of document, newline and 256 bytes
constexpr size_t kLongestSentence = 4000;  // bytes; the library skips sentences longer than 4,192
// Characters that the library uses itself, and line feeds, which are tokens of their own: no sentence may have them.
bool may_be_in_a_sentence(std::string_view character);

// Returns the model's bytes. Equal sentences give equal bytes. Throws Error(bad_input): vocab too large or too small
// for the text, no threads. If a thread of the library runs out of memory, the process ends by std::terminate.
std::string train_sentencepiece(const std::vector<std::string>& sentences, const SentencePieceTraining& training);

}  // namespace shiftron
