// Builds tokenizer.json from a SentencePiece model. Pieces are written with spaces where the model writes U+2581, so
// that no text is normalised and a literal U+2581 is kept. Control tokens are not added tokens of the file, because
// those would be found in texts.
#include "interchange/hugging_face_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "tokenizer/hugging_face/hugging_face_tokenizer.h"
#include "tokenizer/sentencepiece_json.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Model = SentencePieceModel;
using Piece = SentencePiece;
using PieceType = SentencePiece::Type;

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
    if (piece.text.empty() || !is_utf8(piece.text)) refuse_piece(model, id, "is not UTF-8 text");
    if (!texts.insert(piece.text).second) refuse_piece(model, id, "appears twice");
    if (!piece.is_text() && is_one_character(piece.text)) {
      refuse_piece(model, id, "is a single character, but not a piece of text");
    }
  }
  return model;
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
  nlohmann::json cutting;
  nlohmann::json body = token_model_json(model, cutting);
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
