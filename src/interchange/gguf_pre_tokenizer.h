// How llama.cpp calls the ways to cut text into words that it knows.
#pragma once

#include <string>

#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

struct GgufPreTokenizer {
  std::string name;        // tokenizer.ggml.pre
  std::string difference;  // of llama.cpp's words from the tokenizer's; empty: none known
};

// file: a tokenizer.json with a byte-level BPE model. llama.cpp has a fixed list, in which each name stands for regular
// expressions and for whether words that are tokens are merged; both must be those of the file. Throws Error(bad_input)
// naming what is not in the list.
GgufPreTokenizer gguf_pre_tokenizer(const JsonPart& file);

}  // namespace shiftron
