// Reads tokenizer.json, and what is next to it.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace shiftron {

// For the table of kinds (load_tokenizer.cpp).
bool recognises_hugging_face(const std::string& bytes);
std::unique_ptr<Tokenizer> load_hugging_face(std::string bytes, const std::string& path, const TokenizerChoice& choice,
                                             const std::string& advice);
std::unique_ptr<Tokenizer> make_hugging_face(std::string bytes, const TokenizerSettings& settings,
                                             const std::string& name, const std::string& advice);

}  // namespace shiftron
