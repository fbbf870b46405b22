// A SentencePiece model, with byte tokens wherever it would not keep the text: every sequence of bytes survives.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace shiftron {

constexpr char kSentencePieceFile[] = "tokenizer.model";

// All tokens that it gives for a text together stand for exactly the text's bytes. Special tokens are the model's
// control and unknown pieces; they are never given.
class SentencePieceTokenizer : public Tokenizer {
 public:
  // From a model's bytes; `name` is for messages, each of which ends with `advice`. Throws Error(bad_input) if it is
  // not a model, lacks byte tokens or an end-of-document token, or changes text (adds a space in front, folds spaces,
  // normalises characters).
  SentencePieceTokenizer(std::string model_bytes, const std::string& name, const std::string& advice = kTrainTokenizer,
                         const TokenizerSettings& settings = {});
  ~SentencePieceTokenizer() override;
  SentencePieceTokenizer(SentencePieceTokenizer&&) noexcept;
  SentencePieceTokenizer& operator=(SentencePieceTokenizer&&) noexcept;

  std::vector<int32_t> encode(std::string_view text, const std::function<void(size_t)>& notify = {},
                              KnownWords* known = nullptr) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string piece(int32_t id) const override;
  bool lines_stand_alone() const override { return true; }
  std::vector<std::pair<std::string, std::string>> description() const override;

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
  void read_pieces(const std::string& advice);
  void check_keeps_text(const std::string& advice) const;
  void apply(const TokenizerSettings& settings, const std::string& advice);

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::array<int32_t, 256> byte_tokens_{};
  int32_t newline_ = -1;
  bool words_stand_alone_ = false;
};

// For the table of kinds (load_tokenizer.cpp).
bool recognises_sentencepiece(const std::string& bytes);
std::unique_ptr<Tokenizer> load_sentencepiece(std::string bytes, const std::string& path, const TokenizerChoice& choice,
                                              const std::string& advice);
std::unique_ptr<Tokenizer> make_sentencepiece(std::string bytes, const TokenizerSettings& settings,
                                              const std::string& name, const std::string& advice);

}  // namespace shiftron
