// Leaves out settings that the file states itself, so that older versions can read what holds it.
#include "tokenizer/stored_tokenizer.h"

#include "core/check.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace shiftron {

bool is_of_first_versions(const std::string& file_name, const TokenizerSettings& settings) {
  return file_name == kSentencePieceFile && settings == TokenizerSettings{};
}

StoredTokenizer stored_form(const Tokenizer& tokenizer) {
  return {.file = tokenizer.file(),
          .settings = tokenizer.file_states_settings() ? TokenizerSettings{} : tokenizer.settings()};
}

std::string words_of(const TokenizerSettings& settings, int32_t end_of_document) {
  const int32_t beginning = settings.beginning_of_document;
  return detail::concatenate("token ", end_of_document, " ends a document, ",
                             beginning < 0 ? "none" : "token " + std::to_string(beginning), " begins it, names of ",
                             "special tokens are ", settings.special_text ? "these tokens" : "text");
}

std::unique_ptr<Tokenizer> make_tokenizer(const StoredTokenizer& stored, const std::string& name) {
  return make_tokenizer(stored.file, stored.settings, name);
}

}  // namespace shiftron
