// A tokenizer of Hugging Face's package `tokenizers`: its file tokenizer.json.
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/hugging_face/added_tokens.h"
#include "tokenizer/hugging_face/decoder.h"
#include "tokenizer/hugging_face/normalizer.h"
#include "tokenizer/hugging_face/pre_tokenizer.h"
#include "tokenizer/hugging_face/token_model.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

constexpr char kHuggingFaceFile[] = "tokenizer.json";

// For valid UTF-8 it gives the ids that the package gives without its post-processor: with
// `encode_special_tokens=True`, or if settings().special_text is set, with False. Other bytes become the tokens that
// stand for single bytes, if there are such, otherwise U+FFFD. Truncation and padding in the file are ignored.
class HuggingFaceTokenizer : public Tokenizer {
 public:
  // From the file's bytes and their content. Throws Error(bad_input) for what is not supported, naming the key.
  HuggingFaceTokenizer(std::string bytes, const nlohmann::json& content, const TokenizerSettings& settings,
                       const std::string& name);
  ~HuggingFaceTokenizer() override;

  std::vector<int32_t> encode(std::string_view text, const std::function<void(size_t)>& notify = {},
                              KnownWords* known = nullptr) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string piece(int32_t id) const override;
  bool lines_stand_alone() const override { return false; }
  std::vector<std::pair<std::string, std::string>> description() const override { return description_; }

 private:
  class Encoding;  // one call of encode()
  void read_pieces(const nlohmann::json& content);
  void read_byte_tokens();
  void make_finders();

  std::vector<AddedToken> added_;
  std::unique_ptr<const Normalizer> normalizer_;       // may be null
  std::unique_ptr<const PreTokenizer> pre_tokenizer_;  // may be null
  std::unique_ptr<const TokenModel> model_;
  std::unique_ptr<const PieceDecoder> decoder_;
  std::unique_ptr<const AddedTokenFinder> finder_, normalized_finder_;
  std::vector<std::string> pieces_;   // per id
  std::vector<std::string> decoded_;  // likewise: what the decoder gets
  std::vector<bool> exists_;          // likewise
  TokenModel::ByteIds byte_ids_{};
  std::vector<std::pair<std::string, std::string>> description_;
  bool keeps_bytes_ = false;  // all bytes have tokens
  bool cuts_at_marks_ = false;
};

}  // namespace shiftron
