// Trains a byte-level BPE tokenizer: a tokenizer.json as the package `tokenizers` writes it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tokenizer/hugging_face/token_model.h"

namespace shiftron {

using WordCounts = std::unordered_map<std::string, uint64_t, TextHash, std::equal_to<>>;

struct BytePairTraining {
  int64_t vocab = 0;                          // tokens, including the 256 bytes and the special tokens
  std::vector<std::string> special_tokens{};  // the first ids, in this order
};

inline const std::string kBytePairEnd = "<|endoftext|>";  // ends documents
constexpr int64_t kLeastPairs = 2;                        // times that a pair must occur to be merged

// The words of texts in UTF-8, cut by the expression of Llama 3.
WordCounts count_words(const std::vector<std::string>& texts, int threads);

// The most frequent pair of neighbouring tokens becomes a token, and so on; of equally frequent pairs the one with the
// smallest left id, then the smallest right id. Ids: special tokens, bytes in the order of their characters in the
// file, merges. Memory: about 40 times the bytes of the distinct words. Throws Error(bad_input): a special token that
// is empty, given twice or a byte; vocab too small, or larger than the words support.
std::string train_byte_pairs(const WordCounts& words, const BytePairTraining& training);

}  // namespace shiftron
