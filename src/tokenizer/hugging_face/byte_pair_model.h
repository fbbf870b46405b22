// Byte-pair encoding: neighbours are joined, the pair of the lowest rank first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tokenizer/hugging_face/byte_level.h"
#include "tokenizer/hugging_face/merge_table.h"
#include "tokenizer/hugging_face/token_model.h"

namespace shiftron {

// Of bytes (the byte-level tokenizers of GPT-2 and its successors) or of characters (as SentencePiece), with bytes or
// an unknown token for characters that have no piece.
class BytePairModel : public TokenModel {
 public:
  BytePairModel(const JsonPart& part, const TokenModelOptions& options);
  std::unique_ptr<Scratch> make_scratch() const override;
  void encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const override;
  bool can_cut_before(std::string_view mark) const override;

 private:
  struct Work;
  void read_vocabulary(const JsonPart& part, const TokenModelOptions& options);
  void read_merges(const JsonPart& part, const TokenModelOptions& options);
  void add_merge(const std::string& left, const std::string& right, uint32_t rank, const JsonPart& part,
                 const TokenModelOptions& options);
  void set_character(char32_t character, int32_t id);
  int32_t id_of_character(char32_t character) const;
  void split(std::string_view word, std::vector<int32_t>& symbols) const;
  // The ids of the pieces <0xNN> of a character's bytes. False if one is missing.
  bool append_fallback(std::string_view character, std::vector<int32_t>& symbols) const;
  void join_few(std::vector<int32_t>& symbols, Work& work) const;
  void join_many(std::vector<int32_t>& symbols, Work& work) const;

  std::optional<MergeTable> merges_;
  std::vector<std::string> joined_;          // results of merges, if texts might be cut
  std::vector<std::vector<int32_t>> pages_;  // ids of characters, by number / 256 and the rest
  IdOfText words_;                           // that are not cut (ignore_merges)
  ByteLevelAlphabet alphabet_;
  bool gets_bytes_;
  bool falls_back_;  // to bytes
  ByteIds fallback_ids_{};
  bool fuses_unknown_;
  int32_t unknown_ = -1;
};

}  // namespace shiftron
