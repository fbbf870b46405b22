// BPE tokenizers of tokenizer.json that write characters without a piece as bytes (Llama 2, Mistral 7B, Gemma), as
// pieces of llama.cpp's vocabulary "llama".
#pragma once

#include <optional>
#include <string>

#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

struct ByteFallbackVocabulary {
  // unused: pieces that llama.cpp would join in a text where the tokenizer never does.
  SentencePieceModel model{};
  bool add_space_prefix = false;  // see GgufTokenizer
  std::string note{};             // likewise
};

// llama.cpp joins neighbours whose join is any entry, the one with the highest score first; tokenizer.json lists the
// pairs. The scores make both the same: see gguf_byte_fallback.cpp. Nothing if the tokenizer is of another kind.
// Throws Error(bad_input), naming the key: spaces that become something else than U+2581, words that llama.cpp does not
// cut, a byte without a token, no special unknown token, ignore_merges, merges of byte tokens, an added token that is
// found by more than its text, that has a NUL, or that llama.cpp would also find where it is not.
std::optional<ByteFallbackVocabulary> read_byte_fallback(const Tokenizer& tokenizer);

}  // namespace shiftron
