// Numbers of fields are from sentencepiece_model.proto.
#include "tokenizer/sentencepiece_conversion.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "tokenizer/proto_fields.h"
#include "tokenizer/sentencepiece_json.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

constexpr size_t kLongestPiece = 4096;  // SentencePiece makes pieces of at most 16 characters, by default

// What a model does to a text before it cuts it.
struct TextChanges {
  bool adds_space = true;     // in front
  bool folds_spaces = true;   // and removes those at both ends
  bool marks_spaces = true;   // writes U+2581 for them
  bool marks_follow = false;  // a mark belongs to the word before it
  size_t pieces = 0, byte_pieces = 0;
};

void read_normalizer_spec(std::string_view bytes, const std::string& name, TextChanges& changes) {
  for (ProtoFields spec(bytes, name); spec.next();) {
    if (spec.field() == 3) changes.adds_space = spec.number() != 0;
    if (spec.field() == 4) changes.folds_spaces = spec.number() != 0;
    if (spec.field() == 5) changes.marks_spaces = spec.number() != 0;
  }
}

TextChanges changes_of(const std::string& model, const std::string& name) {
  TextChanges changes;
  for (ProtoFields fields(model, name); fields.next();) {
    if (fields.field() == 1) {
      ++changes.pieces;
      for (ProtoFields piece(fields.bytes(), name); piece.next();) {
        changes.byte_pieces += piece.field() == 3 && piece.number() == static_cast<uint64_t>(SentencePiece::Type::byte);
      }
    } else if (fields.field() == 2) {
      for (ProtoFields trainer(fields.bytes(), name); trainer.next();) {
        if (trainer.field() == 24) changes.marks_follow = trainer.number() != 0;
      }
    } else if (fields.field() == 3) {
      read_normalizer_spec(fields.bytes(), name, changes);
    }
  }
  return changes;
}

SentencePiece piece_as_written(std::string_view bytes, const std::string& name) {
  SentencePiece piece;
  for (ProtoFields fields(bytes, name); fields.next();) {
    if (fields.field() == 1) piece.text = fields.bytes();
    if (fields.field() == 2) piece.score = static_cast<double>(fields.real());
    if (fields.field() == 3) piece.type = static_cast<SentencePiece::Type>(fields.number());
  }
  // As tokenizer.json writes added tokens: as they stand in a text.
  if (piece.type == SentencePiece::Type::user_defined) piece.text = with_spaces(piece.text);
  return piece;
}

SentencePieceModel model_as_written(const std::string& bytes, const std::string& name) {
  SentencePieceModel model{algorithm_of(bytes, name), {}, name};
  if (model.algorithm != SentencePieceAlgorithm::unigram && model.algorithm != SentencePieceAlgorithm::bpe) {
    throw_bad_input(name, " is a SentencePiece model of another type than bpe and unigram, which is not supported");
  }
  for (ProtoFields fields(bytes, name); fields.next();) {
    if (fields.field() == 1) model.pieces.push_back(piece_as_written(fields.bytes(), name));
  }
  std::set<std::string_view> texts;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.text.empty() || !is_utf8(piece.text)) refuse_piece(model, id, "is not UTF-8 text");
    if (piece.text.size() > kLongestPiece) refuse_piece(model, id, "is longer than 4,096 bytes");
    if (!std::isfinite(piece.score)) refuse_piece(model, id, "has a score that is not a finite number");
    if (!texts.insert(piece.text).second) refuse_piece(model, id, "appears twice");
    if (piece.type == SentencePiece::Type::unused) refuse_piece(model, id, "is marked as unused");
  }
  return model;
}

nlohmann::json added_tokens(const SentencePieceModel& model, const TextChanges& changes) {
  nlohmann::json added = nlohmann::json::array();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    const bool is_user_defined = piece.type == SentencePiece::Type::user_defined;
    const bool is_special = piece.type == SentencePiece::Type::control || piece.type == SentencePiece::Type::unknown;
    if (!is_user_defined && !is_special) continue;
    if (is_user_defined && changes.adds_space) {
      refuse_piece(model, id, "is user-defined, and the model puts a space in front of texts");
    }
    added.push_back({{"id", id},
                     {"content", piece.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", is_user_defined && !changes.folds_spaces},
                     {"special", is_special}});
  }
  return added;
}

nlohmann::json replacement(const char* kind, const std::string& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
}

nlohmann::json normalizer_json(const TextChanges& changes) {
  const std::string mark(kSpaceMark);
  nlohmann::json list = nlohmann::json::array();
  if (changes.folds_spaces) {
    list.push_back(replacement("Regex", "\\A +|[ " + mark + "]+\\z", ""));
    list.push_back(replacement("Regex", " {2,}", " "));
  }
  if (changes.adds_space) list.push_back({{"type", "Prepend"}, {"prepend", " "}});
  if (changes.marks_spaces) list.push_back(replacement("String", " ", mark));
  if (list.empty()) return nullptr;
  return {{"type", "Sequence"}, {"normalizers", std::move(list)}};
}

nlohmann::json decoder_json(const TextChanges& changes) {
  nlohmann::json list = {
      replacement("String", std::string(kSpaceMark), " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (changes.adds_space) list.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(list)}};
}

}  // namespace

bool needs_conversion(const std::string& model_bytes, const std::string& name) {
  try {
    const TextChanges changes = changes_of(model_bytes, name);
    return changes.pieces > 0 && !normalises_characters(model_bytes, name) &&
           (changes.adds_space || changes.folds_spaces || changes.byte_pieces < 256);
  } catch (const Error&) {
    return false;
  }
}

std::string converted_sentencepiece(const std::string& model_bytes, const std::string& name) {
  const TextChanges changes = changes_of(model_bytes, name);
  if (changes.marks_follow) throw_bad_input(name, " puts spaces at the end of words, which is not supported");
  const SentencePieceModel model = model_as_written(model_bytes, name);
  nlohmann::json cutting;
  nlohmann::json body = token_model_json(model, cutting);
  // Names of added tokens need no cut, and a cut would separate unknown characters, which share one token.
  if (changes.byte_pieces == 0) cutting = nullptr;
  const nlohmann::json file = {{"version", "1.0"},
                               {"truncation", nullptr},
                               {"padding", nullptr},
                               {"added_tokens", added_tokens(model, changes)},
                               {"normalizer", normalizer_json(changes)},
                               {"pre_tokenizer", std::move(cutting)},
                               {"post_processor", nullptr},
                               {"decoder", decoder_json(changes)},
                               {"model", std::move(body)}};
  return file.dump() + "\n";
}

}  // namespace shiftron
