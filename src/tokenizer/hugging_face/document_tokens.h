// Which tokens begin and end a document, as far as a tokenizer's files say it.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/hugging_face/added_tokens.h"
#include "tokenizer/hugging_face/json_part.h"
#include "tokenizer/hugging_face/post_processor.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

// The texts of tokens that the user or tokenizer_config.json (null: there is none) names for document_tokens().
std::vector<std::string> names_of_document_tokens(const JsonPart& configuration, const TokenizerChoice& choice);

// From the user's choice, else tokenizer_config.json (null: there is none), else the post-processor, else the only
// well-known name among the added tokens. Throws Error(bad_input) if they contradict each other or leave it open: then
// the message names the candidates and the options.
TokenizerSettings document_tokens(const std::vector<AddedToken>& added, const AroundText& around,
                                  const JsonPart& configuration, const TokenizerChoice& choice,
                                  const std::string& name);

}  // namespace shiftron
