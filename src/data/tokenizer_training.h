// Makes a tokenizer from text and JSONL files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/documents.h"

namespace shiftron {

constexpr double kLeastCoverage = 0.98;  // of characters, by SentencePiece

inline constexpr const char* kByteLevelKind = "byte-bpe";

struct TokenizerTraining {
  std::vector<std::string> files;             // text or JSONL, see recognise_inputs()
  std::vector<InputFile> recognised;          // the same files, if they have been recognised before: a pipe can be once
  uint64_t skip_bad = 0;                      // so many broken lines of JSONL may be left out
  int64_t vocab = 0;                          // tokens, including the 256 bytes and the fixed ones of the kind
  std::string kind = "bpe";                   // or "unigram", of SentencePiece; or "byte-bpe", a tokenizer.json
  std::string document_separator;             // of text files, not part of the text; empty = none
  std::string text_key = "text";              // of JSONL lines
  double character_coverage = 0.9995;         // share of the characters that get a token; others are written as bytes
  std::vector<std::string> special_tokens{};  // of byte-bpe, in addition to the end of documents
  int threads = 1;                            // that count words, for byte-bpe
  uint64_t sample_bytes = uint64_t{1} << 29;  // if there is more text, an evenly spread part of about this size is used
  bool quiet = true;                          // suppresses the trainer's own log
  std::function<void(const std::string&)> warn{};
};

// What was found in the text.
struct TokenizerText {
  uint64_t foreign_bytes = 0;        // NUL or invalid UTF-8: between sentences, they train nothing
  uint64_t replaced_surrogates = 0;  // became U+FFFD
  uint64_t bad_lines = 0;            // left out
  std::vector<std::string> first_bad{};
};

// Returns a SentencePiece model's bytes, or those of a tokenizer.json. Equal inputs give equal bytes. Throws
// Error(bad_input): file missing, no text, vocab too large or too small for the text, no threads. If a thread of the
// library runs out of memory, the process ends by std::terminate.
std::string train_tokenizer(const TokenizerTraining& training, TokenizerText* text = nullptr);

}  // namespace shiftron
