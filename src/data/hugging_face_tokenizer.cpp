// tokenizer.json out of a SentencePiece model. Pieces are written with spaces where the model writes U+2581, so that no
// text is normalised and a literal U+2581 stays what it is. Control tokens are none of the file's added tokens, which
// would be found in texts.
#include "data/hugging_face_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/check.h"
#include "data/sentencepiece_model.h"
#include "data/utf8.h"

namespace shiftron {
namespace {

using nlohmann::json;

using Model = SentencePieceModel;
using Piece = SentencePiece;
using Algorithm = SentencePieceModel::Algorithm;
using PieceType = SentencePiece::Type;

// The model, which tokenizer.json must be able to say.
Model read_model(const Tokenizer& tokenizer) {
  Model model = read_sentencepiece_model(tokenizer);
  std::set<std::string_view> texts;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    const auto fail = [&](const char* why) {
      throw_bad_input(kModelSource, ": piece ", id, " \"", printable(piece.text), "\" ", why,
                      "; make one with `shiftron tokenizer train`");
    };
    if (piece.type == PieceType::unused) fail("is marked as unused, which tokenizer.json cannot say");
    if (piece.text.empty() || !is_utf8(piece.text)) fail("is no text in UTF-8");
    if (!texts.insert(piece.text).second) fail("is there twice");
  }
  return model;
}

std::string unknown_piece(const Model& model) {
  for (const Piece& piece : model.pieces) {
    if (piece.type == PieceType::unknown) return piece.text;
  }
  throw_bad_input(kModelSource, " has no unknown piece");
}

// SentencePiece joins the neighbours whose join is the piece of the highest score; tokenizer.json lists every join.
json bpe(const Model& model) {
  std::unordered_map<std::string_view, size_t> normal;
  json vocab = json::object();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    vocab[piece.text] = id;
    if (piece.type == PieceType::normal) normal[piece.text] = id;
  }
  struct Merge {
    double score;
    size_t left, right;
  };
  std::vector<Merge> merges;
  for (const auto& [text, id] : normal) {
    for (size_t at = utf8_length(text); at < text.size(); at += utf8_length(text.substr(at))) {
      const auto left = normal.find(text.substr(0, at));
      const auto right = normal.find(text.substr(at));
      if (left == normal.end() || right == normal.end()) continue;
      merges.push_back({model.pieces[id].score, left->second, right->second});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tuple(-a.score, a.left, a.right) < std::tuple(-b.score, b.left, b.right);
  });
  json list = json::array();
  for (const Merge& merge : merges) list.push_back({model.pieces[merge.left].text, model.pieces[merge.right].text});
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unknown_piece(model)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", true},
          {"byte_fallback", true},
          {"ignore_merges", false},
          {"vocab", std::move(vocab)},
          {"merges", std::move(list)}};
}

// A unigram model of tokenizer.json takes any piece for text. So that one which names a control token or a byte is
// never chosen it is made unlikely, and what has a character that no text piece has is cut there (`cuts`), as such a
// character costs more than any piece.
json unigram(const Model& model, json& cuts) {
  std::set<std::string_view> characters;
  double lowest = 0;
  for (const Piece& piece : model.pieces) {
    if (!piece.is_text()) continue;
    lowest = std::min(lowest, piece.score);
    for (std::string_view rest = piece.text; !rest.empty(); rest.remove_prefix(utf8_length(rest))) {
      characters.insert(rest.substr(0, utf8_length(rest)));
    }
  }
  constexpr double kUnlikely = 1000;  // nats; more than any cut of a name into its characters costs
  json vocab = json::array();
  size_t unknown = model.pieces.size();
  std::set<std::string> foreign;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    vocab.push_back({piece.text, piece.is_text() ? piece.score : lowest - kUnlikely});
    if (piece.type == PieceType::unknown) unknown = id;
    if (piece.is_text()) continue;
    for (std::string_view rest = piece.text; !rest.empty(); rest.remove_prefix(utf8_length(rest))) {
      const std::string_view character = rest.substr(0, utf8_length(rest));
      if (!characters.contains(character)) foreign.emplace(character);
    }
  }
  if (unknown == model.pieces.size()) unknown_piece(model);  // throws
  for (const std::string& character : foreign) {
    cuts.push_back(
        {{"type", "Split"}, {"pattern", {{"String", character}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  return {{"type", "Unigram"}, {"unk_id", unknown}, {"byte_fallback", true}, {"vocab", std::move(vocab)}};
}

}  // namespace

std::map<std::string, std::string> hugging_face_tokenizer(const Tokenizer& tokenizer) {
  const Model model = read_model(tokenizer);
  json added = json::array();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type != PieceType::user_defined) continue;
    added.push_back({{"id", id},
                     {"content", model.pieces[id].text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", false}});
  }
  json cuts = json::array();
  json body = model.algorithm == Algorithm::bpe ? bpe(model) : unigram(model, cuts);
  json cutting;  // null: none
  if (!cuts.empty()) cutting = {{"type", "Sequence"}, {"pretokenizers", std::move(cuts)}};
  const json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", std::move(cutting)},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
      {"model", std::move(body)}};
  const json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"eos_token", tokenizer.piece(tokenizer.end_of_document())},
                       {"split_special_tokens", true},  // "</s>" in a text is text
                       {"clean_up_tokenization_spaces", false},
                       {"model_input_names", {"input_ids", "attention_mask"}}};
  return {{"tokenizer.json", file.dump() + "\n"}, {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace shiftron
