// What the kinds of tokenizer.json that GGUF can express share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "tokenizer/hugging_face/added_tokens.h"
#include "tokenizer/hugging_face/json_part.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

// The two pieces of an entry of model.merges.
std::pair<std::string, std::string> merge_pieces(const nlohmann::json& merge);

// Whether Tokenizer::encode finds the name of an added token in texts.
bool is_found_in_texts(const AddedToken& token, const Tokenizer& tokenizer);

// Throws Error(bad_input) for a token that is found by more than its text. part: the added tokens of the file.
void require_plain_search(const AddedToken& token, const Tokenizer& tokenizer, const JsonPart& part);

// Adds to GgufTokenizer::note what llama.cpp does differently; "": nothing.
void add_difference(std::string& note, const std::string& difference);

}  // namespace shiftron
