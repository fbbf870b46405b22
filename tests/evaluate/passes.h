// A model's passes, called directly.
#pragma once

#include <utility>
#include <vector>

#include "evaluate/score_tokens.h"

namespace shiftron::testing {

using Tokens = std::vector<int32_t>;

// The continuation scored after the context.
inline ScoreTokens pass_of(Tokens context, const Tokens& continuation) {
  const auto first = static_cast<int64_t>(context.size()) - 1;
  context.insert(context.end(), continuation.begin(), continuation.end() - 1);
  return {.input = std::move(context), .first = first, .targets = continuation};
}

}  // namespace shiftron::testing
