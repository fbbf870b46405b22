// Converts text to token numbers and back by a SentencePiece model; every sequence of bytes survives the round trip.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/documents.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace shiftron {

class KnownWords;

constexpr int64_t kMostVocab = int64_t{1} << 24;
constexpr double kLeastCoverage = 0.98;  // of characters, by SentencePiece

struct TokenizerTraining {
  std::vector<std::string> files;             // text or JSONL, see recognise_inputs()
  std::vector<InputFile> recognised;          // the same files, if they have been recognised before: a pipe can be once
  uint64_t skip_bad = 0;                      // so many broken lines of JSONL may be left out
  int64_t vocab = 0;                          // tokens, including the 256 bytes, newline, end of document and unknown
  std::string kind = "bpe";                   // or "unigram"
  std::string document_separator;             // of text files, not part of the text; empty = none
  std::string text_key = "text";              // of JSONL lines
  double character_coverage = 0.9995;         // share of the characters that get a token; others are written as bytes
  uint64_t sample_bytes = uint64_t{1} << 29;  // if there is more text, an evenly spread part of about this size is used
  bool quiet = true;                          // suppresses the trainer's own log
};

// What was found in the text.
struct TokenizerText {
  uint64_t foreign_bytes = 0;        // NUL or invalid UTF-8: between sentences, they train nothing
  uint64_t replaced_surrogates = 0;  // became U+FFFD
  uint64_t bad_lines = 0;            // left out
  std::vector<std::string> first_bad{};
};

inline const std::string kTrainTokenizer = "make one with `shiftron tokenizer train`";

// Read-only after construction; may be used from several threads.
class Tokenizer {
 public:
  // Returns the model's bytes. Equal inputs give equal bytes. Throws Error(bad_input): file missing, no text, vocab too
  // large or too small for the text, no threads. If a thread of the library runs out of memory, the process ends by
  // std::terminate.
  static std::string train(const TokenizerTraining& training, TokenizerText* text = nullptr);

  // From a model file. Throws Error(bad_input) if it is not a model, lacks byte tokens or an end-of-document token, or
  // changes text (adds a space in front, folds spaces, normalises characters).
  static Tokenizer load(const std::string& path);
  // From a model's bytes; `name` is for messages, each of which ends with `instead`: what to do.
  Tokenizer(std::string model_bytes, const std::string& name, const std::string& instead = kTrainTokenizer);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Never gives end_of_document() or another control token, whatever the text says.
  // `notify` gets the bytes done, after each line and within long ones. `known` belongs to this tokenizer; it only
  // saves time.
  std::vector<int32_t> encode(std::string_view text, const std::function<void(size_t)>& notify = {},
                              KnownWords* known = nullptr) const;
  // Control tokens become nothing. A number outside the vocabulary: Error(bad_input).
  std::string decode(const std::vector<int32_t>& tokens) const;

  int64_t vocab_size() const { return static_cast<int64_t>(texts_.size()); }
  int32_t end_of_document() const { return end_of_document_; }
  const std::string& name() const { return name_; }  // of the model's file, for messages
  const std::string& model_bytes() const { return model_bytes_; }
  const std::string& hash() const { return hash_; }  // XXH3-128 of model_bytes(), hexadecimal
  // Bytes of text that the token stands for; 0 for control tokens.
  int64_t bytes_of(int32_t token) const { return static_cast<int64_t>(text_of(token).size()); }
  // The bytes themselves.
  const std::string& text_of(int32_t token) const;
  // The model's name of the piece: "▁the", "<0x0A>", "</s>".
  std::string piece(int32_t token) const;

 private:
  void encode_line(std::string_view text, std::vector<int32_t>& tokens, const std::function<void(size_t)>& notify,
                   KnownWords* known) const;
  void encode_plain(std::string_view text, std::vector<int32_t>& tokens, KnownWords* known) const;
  // False, after adding some tokens or none, if the model would not keep the text.
  bool encode_by_model(std::string_view text, std::vector<int32_t>& tokens) const;
  bool encode_by_words(std::string_view text, std::vector<int32_t>& tokens, KnownWords& known) const;
  // Whether a word gets the same tokens in every context.
  bool words_stand_alone() const;
  // Whether `ids` begin with the bytes of the mark that the model writes for a space.
  bool are_bytes_of_a_space(std::span<const int> ids) const;
  void read_pieces(const std::string& instead);
  void check_keeps_text(const std::string& instead) const;

  std::string name_;
  std::string model_bytes_;
  std::string hash_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::vector<std::string> texts_;  // per token
  std::array<int32_t, 256> byte_tokens_{};
  int32_t newline_ = -1;
  int32_t end_of_document_ = -1;
  bool words_stand_alone_ = false;
};

}  // namespace shiftron
