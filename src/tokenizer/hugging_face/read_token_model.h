// Chooses the kind of "model" in tokenizer.json.
#pragma once

#include <memory>

#include "tokenizer/hugging_face/token_model.h"

namespace shiftron {

// Throws Error(bad_input) for a kind that is not supported. A further kind needs a class and a line in
// read_token_model.cpp.
std::unique_ptr<const TokenModel> read_token_model(const JsonPart& part, const TokenModelOptions& options);

}  // namespace shiftron
