// See the header.
#include "interchange/gguf_tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "core/foreign_text.h"

namespace shiftron {

std::pair<std::string, std::string> merge_pieces(const nlohmann::json& merge) {
  if (!merge.is_string()) return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const auto& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  return {text.substr(0, space), text.substr(space + 1)};
}

bool is_found_in_texts(const AddedToken& token, const Tokenizer& tokenizer) {
  return !tokenizer.is_special(token.id) || tokenizer.settings().special_text;
}

void require_plain_search(const AddedToken& token, const Tokenizer& tokenizer, const JsonPart& part) {
  if (!is_found_in_texts(token, tokenizer) || (!token.is_word && !token.takes_left && !token.takes_right)) return;
  part.refuse("\"", printable(token.text), "\" has lstrip, rstrip or single_word, which llama.cpp does not support");
}

void add_difference(std::string& note, const std::string& difference) {
  if (difference.empty()) return;
  note += (note.empty() ? "ids of llama.cpp may differ: " : "; ") + difference;
}

}  // namespace shiftron
