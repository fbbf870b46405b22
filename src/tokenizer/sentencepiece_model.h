// The pieces of a SentencePiece model, as its file states them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/sentencepiece_algorithm.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

struct SentencePiece {
  enum class Type : uint64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string text;  // for control, unknown and byte tokens the model's name: "</s>", "<0x41>"
  double score = 0;
  Type type = Type::normal;  // unused: never given by Tokenizer::encode, whatever the file says
  bool is_text() const { return type == Type::normal || type == Type::user_defined; }
};

struct SentencePieceModel {
  SentencePieceAlgorithm algorithm = SentencePieceAlgorithm::unigram;
  std::vector<SentencePiece> pieces;  // by token
  std::string name;                   // of its file, for messages
};

// Throws Error(bad_input), naming the piece: not a SentencePiece model, malformed fields, another type of model, or a
// bpe model in which SentencePiece joins pieces to an unused one and splits that again.
SentencePieceModel read_sentencepiece_model(const Tokenizer& tokenizer);

}  // namespace shiftron
