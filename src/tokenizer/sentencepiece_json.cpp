// Joins for bpe, scores for unigram.
#include "tokenizer/sentencepiece_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/check.h"
#include "tokenizer/utf8.h"

namespace shiftron {

void refuse_piece(const SentencePieceModel& model, size_t id, const char* why) {
  throw_bad_input(model.name, ": piece ", id, " \"", printable(model.pieces[id].text), "\" ", why,
                  ", which tokenizer.json cannot represent");
}

namespace {

std::string unknown_piece(const SentencePieceModel& model) {
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type == SentencePiece::Type::unknown) return piece.text;
  }
  throw_bad_input(model.name, " has no unknown piece, which tokenizer.json requires");
}

// SentencePiece joins the neighbours whose join is the piece of the highest score; tokenizer.json lists every join.
nlohmann::json bpe_json(const SentencePieceModel& model) {
  std::unordered_map<std::string_view, size_t> normal;
  nlohmann::json vocab = nlohmann::json::object();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    vocab[piece.text] = id;
    if (piece.type == SentencePiece::Type::normal) normal[piece.text] = id;
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
  nlohmann::json list = nlohmann::json::array();
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

template <typename Take>
void for_each_character(std::string_view text, Take take) {
  for (; !text.empty(); text.remove_prefix(utf8_length(text))) take(text.substr(0, utf8_length(text)));
}

// Where a unigram model of tokenizer.json must be cut, so that names that no text becomes are not found in texts: at
// those of their characters that no text piece has. Such characters cost more there than any piece, including the
// names.
std::set<std::string> foreign_characters(const SentencePieceModel& model) {
  std::set<std::string_view> pieces, characters;  // user-defined pieces are found before the model runs
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type != SentencePiece::Type::normal) continue;
    pieces.insert(piece.text);
    for_each_character(piece.text, [&](std::string_view character) { characters.insert(character); });
  }
  std::set<std::string> foreign;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.is_text()) continue;
    for_each_character(piece.text, [&](std::string_view character) {
      if (!characters.contains(character)) {
        foreign.emplace(character);
      } else if (!pieces.contains(character)) {
        refuse_piece(model, id, "is not a piece of text, and has a character that appears only in longer pieces");
      }
    });
  }
  return foreign;
}

// A unigram model of tokenizer.json treats any piece as text. A piece that names a control token or a byte, or is
// unused, is made unlikely, or cut (`cuts`).
nlohmann::json unigram_json(const SentencePieceModel& model, nlohmann::json& cuts) {
  double lowest = 0;
  for (const SentencePiece& piece : model.pieces) {
    if (piece.is_text()) lowest = std::min(lowest, piece.score);
  }
  constexpr double kUnlikely = 1000;  // nats; more than the cost of cutting a name into its characters
  nlohmann::json vocab = nlohmann::json::array();
  size_t unknown = model.pieces.size();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    vocab.push_back({piece.text, piece.is_text() ? piece.score : lowest - kUnlikely});
    if (piece.type == SentencePiece::Type::unknown) unknown = id;
  }
  if (unknown == model.pieces.size()) unknown_piece(model);  // throws
  for (const std::string& character : foreign_characters(model)) {
    cuts.push_back(
        {{"type", "Split"}, {"pattern", {{"String", character}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  return {{"type", "Unigram"}, {"unk_id", unknown}, {"byte_fallback", true}, {"vocab", std::move(vocab)}};
}

}  // namespace

nlohmann::json token_model_json(const SentencePieceModel& model, nlohmann::json& pre_tokenizer) {
  pre_tokenizer = nullptr;
  if (model.algorithm == SentencePieceAlgorithm::bpe) return bpe_json(model);
  nlohmann::json cuts = nlohmann::json::array();
  nlohmann::json body = unigram_json(model, cuts);
  if (!cuts.empty()) pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", std::move(cuts)}};
  return body;
}

}  // namespace shiftron
