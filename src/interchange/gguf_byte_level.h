// Byte-level BPE tokenizers of tokenizer.json in the form of llama.cpp's vocabularies.
#pragma once

#include "interchange/gguf_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

// See gguf_tokenizer(). Throws Error(bad_input), naming the key: another kind of model, a normalizer other than NFC,
// bytes without a token, words that llama.cpp cuts differently, an added token that is found by more than its text.
GgufTokenizer gguf_byte_level(const Tokenizer& tokenizer);

}  // namespace shiftron
