// "model" of tokenizer.json: turns words into ids.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/hash.h"
#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return xxh3_64(text); }
};
using TextSet = std::unordered_set<std::string, TextHash, std::equal_to<>>;
using IdOfText = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

struct TokenModelOptions {
  bool gets_bytes = false;  // words are bytes, not characters that stand for bytes
  TextSet hidden{};         // pieces that no text becomes
};

// Read-only after construction; may be used from several threads.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Adds the ids of a word, which is not empty. scratch: of this thread, kept between calls.
  struct Scratch {
    virtual ~Scratch() = default;
  };
  virtual std::unique_ptr<Scratch> make_scratch() const = 0;
  virtual void encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const = 0;
  // Whether a text that is one word gets the ids of its parts, if it is cut before each `mark` that follows something
  // else than a mark.
  virtual bool can_cut_before(std::string_view mark) const = 0;

  const IdOfText& ids() const { return ids_; }  // of the pieces, as the file writes them
  // Ids of tokens that stand for one byte each; -1: none.
  using ByteIds = std::array<int32_t, 256>;
  const ByteIds& byte_ids() const { return byte_ids_; }
  // Whether a character without a token becomes the unknown token; otherwise it becomes its bytes or nothing.
  bool has_unknown() const { return has_unknown_; }

 protected:
  // Of "<0x0A>" and so on; -1: not there.
  ByteIds fallback_byte_ids() const;
  void add_piece(const std::string& piece, int64_t id, const JsonPart& part);
  IdOfText ids_;
  ByteIds byte_ids_{};
  bool has_unknown_ = true;

 private:
  std::vector<bool> taken_;  // ids
};

}  // namespace shiftron
