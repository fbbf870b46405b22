// Numbers of fields and types are those of sentencepiece_model.proto.
#include "data/sentencepiece_model.h"

#include "core/check.h"
#include "data/proto_fields.h"

namespace shiftron {
namespace {

SentencePiece read_piece(std::string_view bytes, const Tokenizer& tokenizer, int32_t id) {
  SentencePiece piece;
  for (ProtoFields fields(bytes, kModelSource); fields.next();) {
    if (fields.field() == 2) piece.score = static_cast<double>(fields.real());
    if (fields.field() == 3) piece.type = static_cast<SentencePiece::Type>(fields.number());
  }
  piece.text = piece.is_text() ? tokenizer.text_of(id) : tokenizer.piece(id);
  return piece;
}

}  // namespace

SentencePieceModel read_sentencepiece_model(const Tokenizer& tokenizer) {
  using Algorithm = SentencePieceModel::Algorithm;
  SentencePieceModel model;
  for (ProtoFields fields(tokenizer.model_bytes(), kModelSource); fields.next();) {
    if (fields.field() == 1) {
      model.pieces.push_back(read_piece(fields.bytes(), tokenizer, static_cast<int32_t>(model.pieces.size())));
    } else if (fields.field() == 2) {
      for (ProtoFields trainer(fields.bytes(), kModelSource); trainer.next();) {
        if (trainer.field() == 3) model.algorithm = static_cast<Algorithm>(trainer.number());
      }
    }
  }
  if (model.algorithm != Algorithm::unigram && model.algorithm != Algorithm::bpe) {
    throw_bad_input(kModelSource,
                    " is neither bpe nor unigram, which other programs could read; make one with "
                    "`shiftron tokenizer train`");
  }
  return model;
}

}  // namespace shiftron
