// Numbers of fields and types are from sentencepiece_model.proto.
#include "tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <set>

#include "core/check.h"
#include "tokenizer/proto_fields.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Type = SentencePiece::Type;
using Algorithm = SentencePieceAlgorithm;

std::string name_of(Algorithm algorithm) {
  const auto number = static_cast<uint64_t>(algorithm);
  return number == 3 ? "word" : number == 4 ? "char" : std::to_string(number);
}

// Whether encode() ever gives the piece. Pieces that hold a newline next to other characters, or a space where others
// have its mark, are never given: lines are encoded one by one, with marks for spaces. Mostly, pieces of type unused
// are not given either, nor are some that a user has defined.
bool is_given(const SentencePiece& piece, const Tokenizer& tokenizer, int32_t id) {
  const bool is_plain =
      piece.type == Type::normal && tokenizer.piece(id).find_first_of({" \n\0", 3}) == std::string::npos;
  return is_plain || tokenizer.encode(piece.text) == std::vector{id};
}

SentencePiece read_piece(std::string_view bytes, const Tokenizer& tokenizer, int32_t id, bool& is_marked) {
  SentencePiece piece;
  for (ProtoFields fields(bytes, tokenizer.name()); fields.next();) {
    if (fields.field() == 2) piece.score = static_cast<double>(fields.real());
    if (fields.field() == 3) piece.type = static_cast<Type>(fields.number());
  }
  is_marked = piece.type == Type::unused;
  const bool is_text = piece.is_text() || is_marked;
  piece.text = is_text ? tokenizer.text_of(id) : tokenizer.piece(id);
  if (!is_text) return piece;
  if (!is_given(piece, tokenizer, id)) {
    piece.type = Type::unused;
  } else if (is_marked) {
    piece.type = Type::normal;
  }
  return piece;
}

// Whether a bpe model joins other pieces to this one, or this one to others.
bool takes_part_in_joins(const std::string& text, const std::set<std::string_view>& pieces) {
  const size_t first = utf8_length(text);
  if (first == text.size()) {
    return std::ranges::any_of(pieces, [&](std::string_view other) {
      return other.size() > text.size() && other.find(text) != std::string_view::npos;
    });
  }
  for (size_t at = first; first > 0 && at < text.size(); at += std::max<size_t>(1, utf8_length(text.substr(at)))) {
    if (pieces.contains(text.substr(0, at)) && pieces.contains(text.substr(at))) return true;
  }
  return false;
}

// Other programs cannot express this: they have a list of joins, or one without types.
void refuse_joins_of_unused(const SentencePieceModel& model, const std::vector<size_t>& marked) {
  std::set<std::string_view> joined;
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type == Type::normal) joined.insert(piece.text);
  }
  for (const size_t id : marked) joined.insert(model.pieces[id].text);
  for (const size_t id : marked) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.type != Type::unused || !takes_part_in_joins(piece.text, joined)) continue;
    throw_bad_input(model.name, ": piece ", id, " \"", printable(piece.text),
                    "\" is marked as unused but takes part in merges, which other programs do not support");
  }
}

}  // namespace

SentencePieceModel read_sentencepiece_model(const Tokenizer& tokenizer) {
  if (tokenizer.file().name != kSentencePieceFile) throw_bad_input(tokenizer.name(), " is not a SentencePiece model");
  SentencePieceModel model;
  model.name = tokenizer.name();
  model.algorithm = algorithm_of(tokenizer.file().bytes, tokenizer.name());
  std::vector<size_t> marked;  // as unused, in the file
  for (ProtoFields fields(tokenizer.file().bytes, tokenizer.name()); fields.next();) {
    if (fields.field() == 1) {
      const size_t id = model.pieces.size();
      bool is_marked = false;
      model.pieces.push_back(read_piece(fields.bytes(), tokenizer, static_cast<int32_t>(id), is_marked));
      if (is_marked) marked.push_back(id);
    }
  }
  if (model.algorithm != Algorithm::unigram && model.algorithm != Algorithm::bpe) {
    throw_bad_input(
        tokenizer.name(), " is a SentencePiece model of type ", name_of(model.algorithm),
        ", which other programs can read only with SentencePiece; export supports the types bpe and unigram");
  }
  if (model.algorithm == Algorithm::bpe) refuse_joins_of_unused(model, marked);
  return model;
}

}  // namespace shiftron
