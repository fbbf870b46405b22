// Builds tokenizer.json from a SentencePiece model. Pieces are written with spaces where the model writes U+2581, so
// that no text is normalised and a literal U+2581 is kept. Control tokens are not added tokens of the file, because
// those would be found in texts.
#include "interchange/hugging_face_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/check.h"
#include "tokenizer/hugging_face/hugging_face_tokenizer.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Model = SentencePieceModel;
using Piece = SentencePiece;
using Algorithm = SentencePieceAlgorithm;
using PieceType = SentencePiece::Type;

[[noreturn]] void refuse(const Model& model, size_t id, const char* why) {
  throw_bad_input(model.name, ": piece ", id, " \"", printable(model.pieces[id].text), "\" ", why,
                  ", which tokenizer.json cannot represent");
}

bool is_one_character(std::string_view text) {
  return utf8_length(text) == text.size();
}

// Renames an unused piece if its text is also a piece that is used, or one character, which is always looked up.
void rename_unused(Model& model) {
  std::set<std::string> used;
  for (const Piece& piece : model.pieces) {
    if (piece.type != PieceType::unused) used.insert(piece.text);
  }
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    Piece& piece = model.pieces[id];
    if (piece.type != PieceType::unused || (!is_one_character(piece.text) && !used.contains(piece.text))) continue;
    piece.text = "[unused " + std::to_string(id) + "]";
    while (used.contains(piece.text)) piece.text += "]";
  }
}

// The model, after checking that tokenizer.json can express it.
Model read_model(const Tokenizer& tokenizer) {
  Model model = read_sentencepiece_model(tokenizer);
  rename_unused(model);
  std::set<std::string_view> texts;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.text.empty() || !is_utf8(piece.text)) refuse(model, id, "is not UTF-8 text");
    if (!texts.insert(piece.text).second) refuse(model, id, "appears twice");
    if (!piece.is_text() && is_one_character(piece.text)) {
      refuse(model, id, "is a single character, but not a piece of text");
    }
  }
  return model;
}

std::string unknown_piece(const Model& model) {
  for (const Piece& piece : model.pieces) {
    if (piece.type == PieceType::unknown) return piece.text;
  }
  throw_bad_input(model.name, " has no unknown piece, which tokenizer.json requires");
}

// SentencePiece joins the neighbours whose join is the piece of the highest score; tokenizer.json lists every join.
nlohmann::json bpe(const Model& model) {
  std::unordered_map<std::string_view, size_t> normal;
  nlohmann::json vocab = nlohmann::json::object();
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
std::set<std::string> foreign_characters(const Model& model) {
  std::set<std::string_view> pieces, characters;  // user-defined pieces are found before the model runs
  for (const Piece& piece : model.pieces) {
    if (piece.type != PieceType::normal) continue;
    pieces.insert(piece.text);
    for_each_character(piece.text, [&](std::string_view character) { characters.insert(character); });
  }
  std::set<std::string> foreign;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.is_text()) continue;
    for_each_character(piece.text, [&](std::string_view character) {
      if (!characters.contains(character)) {
        foreign.emplace(character);
      } else if (!pieces.contains(character)) {
        refuse(model, id, "is not a piece of text, and has a character that appears only in longer pieces");
      }
    });
  }
  return foreign;
}

// A unigram model of tokenizer.json treats any piece as text. A piece that names a control token or a byte, or is
// unused, is made unlikely, or cut (`cuts`).
nlohmann::json unigram(const Model& model, nlohmann::json& cuts) {
  double lowest = 0;
  for (const Piece& piece : model.pieces) {
    if (piece.is_text()) lowest = std::min(lowest, piece.score);
  }
  constexpr double kUnlikely = 1000;  // nats; more than the cost of cutting a name into its characters
  nlohmann::json vocab = nlohmann::json::array();
  size_t unknown = model.pieces.size();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    vocab.push_back({piece.text, piece.is_text() ? piece.score : lowest - kUnlikely});
    if (piece.type == PieceType::unknown) unknown = id;
  }
  if (unknown == model.pieces.size()) unknown_piece(model);  // throws
  for (const std::string& character : foreign_characters(model)) {
    cuts.push_back(
        {{"type", "Split"}, {"pattern", {{"String", character}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  return {{"type", "Unigram"}, {"unk_id", unknown}, {"byte_fallback", true}, {"vocab", std::move(vocab)}};
}

nlohmann::json configuration(const Tokenizer& tokenizer) {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},
          {"eos_token", tokenizer.piece(tokenizer.end_of_document())},
          {"clean_up_tokenization_spaces", false},
          {"model_input_names", {"input_ids", "attention_mask"}}};
}

std::map<std::string, std::string> unchanged(const Tokenizer& tokenizer) {
  nlohmann::json config = configuration(tokenizer);
  const int32_t beginning = tokenizer.beginning_of_document();
  config["add_bos_token"] = beginning >= 0;
  if (beginning >= 0) config["bos_token"] = tokenizer.piece(beginning);
  return {{kHuggingFaceFile, tokenizer.file().bytes}, {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace

std::map<std::string, std::string> hugging_face_tokenizer(const Tokenizer& tokenizer) {
  if (tokenizer.file().name == kHuggingFaceFile) return unchanged(tokenizer);
  const Model model = read_model(tokenizer);
  nlohmann::json added = nlohmann::json::array();
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
  nlohmann::json cuts = nlohmann::json::array();
  nlohmann::json body = model.algorithm == Algorithm::bpe ? bpe(model) : unigram(model, cuts);
  nlohmann::json cutting;  // null: none
  if (!cuts.empty()) cutting = {{"type", "Sequence"}, {"pretokenizers", std::move(cuts)}};
  const nlohmann::json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", std::move(cutting)},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
      {"model", std::move(body)}};
  nlohmann::json config = configuration(tokenizer);
  config["split_special_tokens"] = true;  // "</s>" in a text is text
  return {{"tokenizer.json", file.dump() + "\n"}, {"tokenizer_config.json", config.dump(2) + "\n"}};
}

std::string refusing_tokenizer_config() {
  // transformers reports only the name of the missing module.
  const nlohmann::json config = {
      {"auto_map",
       {{"AutoTokenizer", {"this_tokenizer_is_read_by_sentencepiece_alone.SentencePieceProcessor", nullptr}}}}};
  return config.dump(2) + "\n";
}

}  // namespace shiftron
