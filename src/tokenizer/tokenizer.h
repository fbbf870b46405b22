// What turns text into token ids and back, whatever program made it. Users of this interface do not know the kind.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shiftron {

class KnownWords;

constexpr int64_t kMostVocab = int64_t{1} << 24;

inline const std::string kTrainTokenizer = "make one with `shiftron tokenizer train`";

// A tokenizer as it is stored in datasets and checkpoints. Its name there says how to read it.
struct TokenizerFile {
  std::string name;  // "tokenizer.model" (SentencePiece) or "tokenizer.json" (Hugging Face)
  std::string bytes;
};

// What the bytes do not state; stored next to them.
struct TokenizerSettings {
  int32_t end_of_document = -1;        // id that is put after each document; -1 = the one that the file states
  int32_t beginning_of_document = -1;  // id that is put before each document; -1 = none
  bool special_text = false;           // whether a special token's name in a text becomes that token
  bool operator==(const TokenizerSettings&) const = default;
};

// What a user asks for; what is not set is as the tokenizer's files state it.
struct TokenizerChoice {
  std::optional<std::string> end_of_document{};        // the text of a token
  std::optional<std::string> beginning_of_document{};  // likewise, or kNoToken
  bool special_text = false;
};
inline const std::string kNoToken = "none";

// Read-only after construction; may be used from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of a text, without a beginning or an end of document. Unless settings().special_text is set, a special
  // token is never among them, whatever the text says. `notify` gets the bytes done, in ascending order, while a text
  // is read. `known` belongs to this tokenizer and one thread; it only saves time.
  virtual std::vector<int32_t> encode(std::string_view text, const std::function<void(size_t)>& notify = {},
                                      KnownWords* known = nullptr) const = 0;
  // The text of ids. Special tokens become nothing. An id outside the vocabulary: Error(bad_input).
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // The tokenizer's own name of a token: "▁the", "<0x0A>", "</s>". An id outside the vocabulary: Error(bad_input).
  virtual std::string piece(int32_t id) const = 0;
  // Whether the ids of a text are those of its lines, each with its line feed, one after another.
  virtual bool lines_stand_alone() const = 0;
  // What it is, for people: "kind", and whatever else describes it.
  virtual std::vector<std::pair<std::string, std::string>> description() const = 0;

  int64_t vocab_size() const { return static_cast<int64_t>(texts_.size()); }  // ids are smaller
  int32_t end_of_document() const { return settings_.end_of_document; }
  int32_t beginning_of_document() const { return settings_.beginning_of_document; }  // -1 = none
  const TokenizerSettings& settings() const { return settings_; }  // with what the file states filled in
  // Whether make_tokenizer() with the file alone gives these settings.
  bool file_states_settings() const { return file_states_settings_; }
  const TokenizerFile& file() const { return file_; }
  const std::string& name() const { return name_; }  // of the file that it came from, for messages
  const std::string& hash() const { return hash_; }  // XXH3-128 of file().bytes, hexadecimal
  // The bytes that a token adds to a text: none for a special one. An id outside the vocabulary: Error(bad_input).
  const std::string& text_of(int32_t id) const;
  int64_t bytes_of(int32_t id) const { return static_cast<int64_t>(text_of(id).size()); }
  // Whether encode() leaves out characters that have no token.
  bool loses_characters() const { return loses_characters_; }
  // Whether the token is there for programs, not for text. An id outside the vocabulary: Error(bad_input).
  bool is_special(int32_t id) const;

 protected:
  Tokenizer(TokenizerFile file, std::string name);
  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  std::vector<std::string> texts_;  // per id
  std::vector<bool> is_special_;    // likewise
  TokenizerSettings settings_;
  bool file_states_settings_ = false;
  bool loses_characters_ = false;

 private:
  TokenizerFile file_;
  std::string name_;
  std::string hash_;
};

}  // namespace shiftron
