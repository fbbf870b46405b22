// Numbers of fields are from sentencepiece_model.proto.
#include "tokenizer/sentencepiece_algorithm.h"

#include "tokenizer/proto_fields.h"

namespace shiftron {

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

}  // namespace shiftron
