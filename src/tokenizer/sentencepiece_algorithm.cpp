// Numbers of fields are from sentencepiece_model.proto.
#include "tokenizer/sentencepiece_algorithm.h"

#include "tokenizer/proto_fields.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

constexpr uint64_t kNormalizer = 3, kDenormalizer = 5, kTable = 2;

}  // namespace

SentencePieceAlgorithm algorithm_of(const std::string& model_bytes, const std::string& name) {
  SentencePieceAlgorithm algorithm = SentencePieceAlgorithm::unigram;
  for (ProtoFields fields(model_bytes, name); fields.next();) {
    if (fields.field() != 2) continue;
    for (ProtoFields trainer(fields.bytes(), name); trainer.next();) {
      if (trainer.field() == 3) algorithm = static_cast<SentencePieceAlgorithm>(trainer.number());
    }
  }
  return algorithm;
}

bool normalises_characters(const std::string& model_bytes, const std::string& name) {
  for (ProtoFields fields(model_bytes, name); fields.next();) {
    if (fields.field() != kNormalizer && fields.field() != kDenormalizer) continue;
    for (ProtoFields spec(fields.bytes(), name); spec.next();) {
      if (spec.field() == kTable && !spec.bytes().empty()) return true;
    }
  }
  return false;
}

std::string with_spaces(const std::string& piece) {
  std::string text;
  size_t from = 0;
  for (size_t at; (at = piece.find(kSpaceMark, from)) != std::string::npos; from = at + kSpaceMark.size()) {
    text.append(piece, from, at - from);
    text += ' ';
  }
  return text.append(piece, from);
}

}  // namespace shiftron
