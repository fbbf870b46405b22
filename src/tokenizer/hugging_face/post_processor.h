// "post_processor" of tokenizer.json, as far as it says which tokens are put around a text.
#pragma once

#include <cstdint>
#include <optional>

#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

struct AroundText {
  std::optional<int32_t> beginning{};
  std::optional<int32_t> end{};
};

// Throws Error(bad_input) for a kind that is not supported, and for several tokens at one end. A further kind needs a
// function and a line in post_processor.cpp.
AroundText read_post_processor(const JsonPart& part);

}  // namespace shiftron
