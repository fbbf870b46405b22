// The pieces of a SentencePiece model, as its file states them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace shiftron {

inline const std::string kModelSource = "the tokenizer's model";  // in messages

struct SentencePiece {
  enum class Type : uint64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string text;  // of control, unknown and byte tokens the model's name: "</s>", "<0x41>"
  double score = 0;
  Type type = Type::normal;
  bool is_text() const { return type == Type::normal || type == Type::user_defined; }
};

struct SentencePieceModel {
  enum class Algorithm : uint64_t { unigram = 1, bpe = 2 };
  Algorithm algorithm = Algorithm::unigram;
  std::vector<SentencePiece> pieces;  // by token
};

// Throws Error(bad_input): fields that do not fit, another kind of model.
SentencePieceModel read_sentencepiece_model(const Tokenizer& tokenizer);

}  // namespace shiftron
