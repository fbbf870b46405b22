// Looks through "vocab" and "merges".
#include "tokenizer/hugging_face/named_tokens.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

// "a b" or ["a", "b"].
std::string joined_by(const nlohmann::json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return merge[0].get<std::string>() + merge[1].get<std::string>();
  }
  std::string text = merge.is_string() ? merge.get<std::string>() : "";
  if (const size_t space = text.find(' '); space != std::string::npos) text.erase(space, 1);
  return text;
}

bool is_made(const JsonPart& model, const std::string& text) {
  if (model["ignore_merges"].boolean_or(false)) return true;
  return std::ranges::any_of(model["merges"].value(),
                             [&](const nlohmann::json& merge) { return joined_by(merge) == text; });
}

std::optional<AddedToken> in_bpe(const JsonPart& model, const std::string& text, const nlohmann::json& id) {
  if (utf8_length(text) == text.size() || !id.is_number_unsigned() || is_made(model, text)) return std::nullopt;
  return AddedToken{.id = id.get<int32_t>(), .text = text, .is_special = true};
}

// Pieces of a unigram model: [text, score].
std::optional<AddedToken> in_unigram(const nlohmann::json& pieces, size_t id) {
  const auto score_of = [](const nlohmann::json& piece) {
    const bool is_piece = piece.is_array() && piece.size() == 2 && piece[0].is_string() && piece[1].is_number();
    return is_piece ? std::optional(piece[1].get<double>()) : std::nullopt;
  };
  const auto score = score_of(pieces[id]);
  const bool is_lowest = score && std::ranges::none_of(pieces, [&](const nlohmann::json& other) {
                           const auto of_other = score_of(other);
                           return of_other && *of_other < *score;
                         });
  if (!is_lowest) return std::nullopt;
  const auto text = pieces[id][0].get<std::string>();
  if (utf8_length(text) == text.size()) return std::nullopt;
  return AddedToken{.id = static_cast<int32_t>(id), .text = text, .is_special = true};
}

}  // namespace

std::optional<AddedToken> named_token(const JsonPart& model, const std::string& text) {
  const nlohmann::json& vocabulary = model["vocab"].value();
  if (vocabulary.is_object()) {
    const auto found = vocabulary.find(text);
    return found == vocabulary.end() ? std::nullopt : in_bpe(model, text, *found);
  }
  for (size_t id = 0; vocabulary.is_array() && id < vocabulary.size(); ++id) {
    const nlohmann::json& piece = vocabulary[id];
    if (piece.is_array() && !piece.empty() && piece[0] == text) return in_unigram(vocabulary, id);
  }
  return std::nullopt;
}

std::optional<AddedToken> named_token(const JsonPart& model, int32_t id) {
  const nlohmann::json& vocabulary = model["vocab"].value();
  if (id < 0) return std::nullopt;
  if (vocabulary.is_object()) {
    const auto found = std::ranges::find_if(vocabulary.items(), [&](const auto& item) { return item.value() == id; });
    return found == vocabulary.items().end() ? std::nullopt : in_bpe(model, found.key(), found.value());
  }
  if (!vocabulary.is_array() || static_cast<size_t>(id) >= vocabulary.size()) return std::nullopt;
  return in_unigram(vocabulary, static_cast<size_t>(id));
}

}  // namespace shiftron
