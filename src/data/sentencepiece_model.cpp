// Numbers of fields and types are those of sentencepiece_model.proto.
#include "data/sentencepiece_model.h"

#include <bit>

#include "core/check.h"

namespace shiftron {
namespace {

// Fields of a message of protocol buffers, one after the other.
class ProtoFields {
 public:
  ProtoFields(std::string_view bytes, const std::string& what) : rest_(bytes), what_(what) {}
  // False at the end; then number() or bytes() holds the value of field().
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t tag = variable_length();
    field_ = tag >> 3;
    switch (tag & 7) {
      case 0:
        number_ = variable_length();
        break;
      case 1:
        bytes_ = take(8);
        break;
      case 2:
        bytes_ = take(variable_length());
        break;
      case 5:
        bytes_ = take(4);
        break;
      default:
        fail();
    }
    return true;
  }
  uint64_t field() const { return field_; }
  uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }
  float real() const {
    if (bytes_.size() != 4) fail();
    uint32_t bits = 0;
    for (int i = 3; i >= 0; --i) bits = bits << 8 | static_cast<uint8_t>(bytes_[static_cast<size_t>(i)]);
    return std::bit_cast<float>(bits);
  }

 private:
  [[noreturn]] void fail() const { throw_bad_input(what_, " is damaged: its fields do not fit into it"); }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) fail();
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  uint64_t variable_length() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
    fail();
  }
  std::string_view rest_;
  const std::string& what_;
  uint64_t field_ = 0, number_ = 0;
  std::string_view bytes_;
};

const std::string kSource = "the tokenizer's model";

SentencePiece read_piece(std::string_view bytes, const Tokenizer& tokenizer, int32_t id) {
  SentencePiece piece;
  for (ProtoFields fields(bytes, kSource); fields.next();) {
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
  for (ProtoFields fields(tokenizer.model_bytes(), kSource); fields.next();) {
    if (fields.field() == 1) {
      model.pieces.push_back(read_piece(fields.bytes(), tokenizer, static_cast<int32_t>(model.pieces.size())));
    } else if (fields.field() == 2) {
      for (ProtoFields trainer(fields.bytes(), kSource); trainer.next();) {
        if (trainer.field() == 3) model.algorithm = static_cast<Algorithm>(trainer.number());
      }
    }
  }
  if (model.algorithm != Algorithm::unigram && model.algorithm != Algorithm::bpe) {
    throw_bad_input(kSource,
                    " is neither bpe nor unigram, which other programs could read; make one with "
                    "`shiftron tokenizer train`");
  }
  return model;
}

}  // namespace shiftron
