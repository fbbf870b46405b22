// Reads a tokenizer of whatever kind.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace shiftron {

// From a file of any name, or from a directory. `advice` ends messages about a file that is of no use. Throws
// Error(bad_input): not a tokenizer, one that is not supported, or a choice that it leaves open or does not allow.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path, const TokenizerChoice& choice = {},
                                          const std::string& advice = kTrainTokenizer);
// From stored bytes; `name` is for messages. Throws Error(bad_input) as load_tokenizer().
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerFile file, const TokenizerSettings& settings,
                                          const std::string& name, const std::string& advice = kTrainTokenizer);

// The names under which tokenizers are stored.
std::vector<std::string> tokenizer_file_names();

}  // namespace shiftron
