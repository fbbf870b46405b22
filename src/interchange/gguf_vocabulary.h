// What a GGUF file says of a tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shiftron {

// tokenizer.ggml.model, pre, tokens, scores, token_type, merges and the tokens with a role of their own.
struct GgufTokenizer {
  std::string model;  // "llama" for a bpe model of SentencePiece or with byte fallback, "t5" for a unigram model,
                      // "gpt2" for byte-level BPE
  std::string pre = "default";  // how words are cut; see gguf_pre_tokenizer.h
  std::vector<std::string> pieces{};
  std::vector<float> scores{};        // none for byte-level BPE
  std::vector<int32_t> types{};       // numbers of sentencepiece_model.proto, which llama.cpp uses too
  std::vector<std::string> merges{};  // of byte-level BPE, the first one first: two pieces with a space in between
  std::optional<uint32_t> unknown{}, beginning_of_document{};
  uint32_t end_of_document = 0;
  bool add_space_prefix =
      false;           // whether llama.cpp puts a space in front of a text, and of what follows a found token
  std::string note{};  // differences of every model of this kind; empty: none known
};

// Whether llama.cpp cannot read the whole name of a token: it ends at the first NUL.
inline bool has_nul(const std::string& name) {
  return name.find('\0') != std::string::npos;
}

}  // namespace shiftron
