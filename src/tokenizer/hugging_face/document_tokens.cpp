// See the header.
#include "tokenizer/hugging_face/document_tokens.h"

#include <algorithm>
#include <optional>

namespace shiftron {
namespace {

constexpr const char* kEnds[] = {"<|endoftext|>", "</s>",  "<|end_of_text|>", "<eos>",
                                 "<|eos|>",       "[EOS]", "<EOS>",           "<｜end▁of▁sentence｜>"};

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + printable(name);
  return text;
}

class TokenSearch {
 public:
  TokenSearch(const std::vector<AddedToken>& added, const std::string& name) : added_(added), name_(name) {}

  int32_t id_of(const std::string& text, const std::string& who) const {
    const auto found = std::ranges::find(added_, text, &AddedToken::text);
    if (found == added_.end()) {
      throw_bad_input(who, " is \"", printable(text), "\", but ", name_, " has no added token of that text; it has ",
                      list_of(special_names()));
    }
    return found->id;
  }
  std::string text_of(int32_t id) const {
    const auto found = std::ranges::find(added_, id, &AddedToken::id);
    if (found == added_.end()) throw_bad_input(name_, ": token ", id, " of its post_processor is not an added token");
    return found->text;
  }
  std::vector<std::string> special_names() const {
    constexpr size_t kMostNames = 12;
    std::vector<std::string> names;
    for (const AddedToken& token : added_) {
      if (token.is_special && names.size() < kMostNames) names.push_back(token.text);
    }
    return names;
  }
  std::vector<std::string> well_known_ends() const {
    std::vector<std::string> names;
    for (const char* const end : kEnds) {
      if (std::ranges::find(added_, end, &AddedToken::text) != added_.end()) names.emplace_back(end);
    }
    return names;
  }

 private:
  const std::vector<AddedToken>& added_;
  const std::string& name_;
};

// A token of tokenizer_config.json: its text, or an object with it; "" for null.
std::string text_of_token(const JsonPart& part) {
  if (part.is_null()) return "";
  return part.value().is_object() ? part["content"].text() : part.text();
}

int32_t end_of_document(const TokenSearch& search, const AroundText& around, const JsonPart& configuration,
                        const TokenizerChoice& choice, const std::string& name) {
  if (choice.end_of_document) return search.id_of(*choice.end_of_document, "--end-of-document");
  if (!configuration.is_null()) {
    const JsonPart end = configuration["eos_token"];
    if (const std::string text = text_of_token(end); !text.empty()) return search.id_of(text, end.place());
  }
  if (around.end) {
    search.text_of(*around.end);
    return *around.end;
  }
  const auto ends = search.well_known_ends();
  if (ends.size() == 1) return search.id_of(ends[0], name);
  throw_bad_input(name,
                  " does not say which token ends a document; choose one with "
                  "--end-of-document TOKEN, for example of ",
                  list_of(ends.empty() ? search.special_names() : ends));
}

int32_t beginning_of_document(const TokenSearch& search, const AroundText& around, const JsonPart& configuration,
                              const TokenizerChoice& choice, const std::string& name) {
  if (choice.beginning_of_document) {
    return *choice.beginning_of_document == kNoToken
               ? -1
               : search.id_of(*choice.beginning_of_document, "--beginning-of-document");
  }
  const int32_t own = around.beginning.value_or(-1);
  if (own >= 0) search.text_of(own);
  if (configuration.is_null() || configuration["add_bos_token"].is_null()) return own;
  const JsonPart adds = configuration["add_bos_token"], token = configuration["bos_token"];
  const std::string text = text_of_token(token);
  const int32_t said = adds.boolean() && !text.empty() ? search.id_of(text, token.place()) : -1;
  if (said == own) return own;
  const auto words = [&](int32_t id) { return id < 0 ? "no token" : "\"" + printable(search.text_of(id)) + "\""; };
  throw_bad_input(name, " puts ", words(own), " before a text, but ", adds.place(), " says ", words(said),
                  "; choose with --beginning-of-document TOKEN, or none");
}

}  // namespace

std::vector<std::string> names_of_document_tokens(const JsonPart& configuration, const TokenizerChoice& choice) {
  std::vector<std::string> names;
  if (choice.end_of_document) names.push_back(*choice.end_of_document);
  if (choice.beginning_of_document) names.push_back(*choice.beginning_of_document);
  if (configuration.is_null()) return names;
  for (const char* const key : {"eos_token", "bos_token"}) names.push_back(text_of_token(configuration[key]));
  return names;
}

TokenizerSettings document_tokens(const std::vector<AddedToken>& added, const AroundText& around,
                                  const JsonPart& configuration, const TokenizerChoice& choice,
                                  const std::string& name) {
  const TokenSearch search(added, name);
  return {.end_of_document = end_of_document(search, around, configuration, choice, name),
          .beginning_of_document = beginning_of_document(search, around, configuration, choice, name),
          .special_text = choice.special_text};
}

}  // namespace shiftron
