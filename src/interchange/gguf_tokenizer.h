// Tokenizers of every kind in the form of llama.cpp's vocabularies.
#pragma once

#include "interchange/gguf_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

// For use without adding tokens at the ends. llama.cpp then gives the numbers of Tokenizer::encode
// for texts in UTF-8, except for: U+2581, which it reads as a space; lines of more than 64 KiB, which encode() cuts;
// names of bytes ("<0x41>"), if pieces join to one; user-defined pieces that overlap. With a unigram model also for
// characters without a piece, which it writes as the unknown token, and for equally good cuts.
// If pieces could join to a control token's name, so that text would become the token, it is named [control N]. A piece
// that llama.cpp would give but encode() never does is named [unused N]. Tokenizers of tokenizer.json differ only where
// `note` says so and where added tokens overlap, byte-level BPE also in rare characters: see docs/interchange.md.
// Throws Error(bad_input), naming the piece or the key: two pieces of the same text, no unknown token, what
// read_sentencepiece_model(), read_byte_fallback() and gguf_byte_level() refuse.
GgufTokenizer gguf_tokenizer(const Tokenizer& tokenizer);

}  // namespace shiftron
