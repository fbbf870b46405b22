// Shared by tests: that a tokenizer loses nothing of a text.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace shiftron {

// Decoding gives the text back, the tokens stand for exactly its bytes, none is a control token.
inline void expect_kept(const Tokenizer& any, const std::string& text) {
  const std::vector<int32_t> tokens = any.encode(text);
  EXPECT_EQ(any.decode(tokens), text);
  int64_t bytes = 0;
  for (const int32_t token : tokens) {
    bytes += any.bytes_of(token);
    EXPECT_GT(any.bytes_of(token), 0) << any.piece(token);
  }
  EXPECT_EQ(bytes, static_cast<int64_t>(text.size()));
}

}  // namespace shiftron
