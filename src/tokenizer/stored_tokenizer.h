// A tokenizer as datasets and checkpoints hold it.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace shiftron {

struct StoredTokenizer {
  TokenizerFile file{};          // without bytes: there is no tokenizer
  TokenizerSettings settings{};  // end_of_document -1: the one that the file states

  bool is_there() const { return !file.bytes.empty(); }
};

// What datasets and checkpoints of the first versions could say: tokenizer.model, with what the file states. All others
// raise the version of what holds them.
bool is_of_first_versions(const std::string& file_name, const TokenizerSettings& settings);

// The inverse of make_tokenizer(). Equal choices have equal settings, whether they were made or are the file's own.
StoredTokenizer stored_form(const Tokenizer& tokenizer);
// "token 5 ends a document, token 3 begins it, names of special tokens are text": for messages. `end_of_document`
// replaces one that the file states.
std::string words_of(const TokenizerSettings& settings, int32_t end_of_document);
// Throws Error(bad_input) as that of load_tokenizer.h. `name` is for messages.
std::unique_ptr<Tokenizer> make_tokenizer(const StoredTokenizer& stored, const std::string& name);

}  // namespace shiftron
