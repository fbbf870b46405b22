// The kinds of pre-tokenizers, and their table.
#include "tokenizer/hugging_face/pre_tokenizer.h"

#include <optional>
#include <vector>

#include "tokenizer/hugging_face/byte_level.h"
#include "tokenizer/hugging_face/character_classes.h"
#include "tokenizer/hugging_face/code_points.h"
#include "tokenizer/hugging_face/read_kind.h"
#include "tokenizer/hugging_face/regular_expression.h"
#include "tokenizer/hugging_face/replacement.h"
#include "tokenizer/hugging_face/splitter.h"

namespace shiftron {
namespace {

using MadePreTokenizer = std::unique_ptr<PreTokenizer>;

// Splits at each character of a class.
template <typename IsIn>
void split_at_characters(const TextPiece& text, SplitBehaviour behaviour, const TakePiece& take, IsIn is_in) {
  Splitter splitter(text, behaviour, false, take);
  for (size_t at = 0; at < text.text.size();) {
    const CodePoint character = first_code_point(text.text.substr(at));
    if (is_in(character.value)) splitter.match(at, at + character.bytes);
    at += character.bytes;
  }
  splitter.finish();
}

class SplitPreTokenizer : public PreTokenizer {
 public:
  explicit SplitPreTokenizer(const JsonPart& part)
      : pattern_(part["pattern"]),
        behaviour_(read_split_behaviour(part["behavior"])),
        is_inverted_(part["invert"].boolean_or(false)) {}
  void split(const TextPiece& text, const TakePiece& take) const override {
    Splitter splitter(text, behaviour_, is_inverted_, take);
    pattern_.for_each_match(text.text, [&](size_t begin, size_t end) { splitter.match(begin, end); });
    splitter.finish();
  }

 private:
  Pattern pattern_;
  SplitBehaviour behaviour_;
  bool is_inverted_;
};

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  explicit ByteLevelPreTokenizer(const JsonPart& part) : puts_space_(part["add_prefix_space"].boolean()) {
    if (part["use_regex"].boolean_or(true)) words_.emplace(kWords, part);
  }
  bool is_byte_level() const override { return true; }
  bool give_bytes() override { return gives_bytes_ = true; }
  void split(const TextPiece& text, const TakePiece& take) const override {
    if (!puts_space_ || text.continues || text.text.starts_with(' ')) return cut(text, take);
    const std::string with_space = " " + std::string(text.text);
    cut({with_space, text.is_first, false}, take);
  }

 private:
  // GPT-2's.
  static constexpr const char* kWords = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

  void cut(const TextPiece& text, const TakePiece& take) const {
    if (gives_bytes_) return cut_into_words(text, take);
    std::string encoded;
    cut_into_words(text, [&](const TextPiece& piece) {
      encoded.clear();
      alphabet_.append_encoded(encoded, piece.text);
      take({encoded, piece.is_first, piece.continues});
    });
  }
  void cut_into_words(const TextPiece& text, const TakePiece& take) const {
    if (!words_) return take(text);
    Splitter splitter(text, SplitBehaviour::isolated, false, take);
    words_->for_each_match(text.text, [&](size_t begin, size_t end) { splitter.match(begin, end); });
    splitter.finish();
  }
  std::optional<RegularExpression> words_;
  ByteLevelAlphabet alphabet_;
  bool puts_space_;
  bool gives_bytes_ = false;
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(const JsonPart& part)
      : mark_(part["replacement"].text()), splits_(part["split"].boolean_or(true)), puts_(read_puts(part)) {
    if (mark_.empty() || first_code_point(mark_).bytes != mark_.size()) {
      part["replacement"].refuse("\"", printable(mark_), "\" is not one character");
    }
  }
  void split(const TextPiece& text, const TakePiece& take) const override {
    std::string marked;
    marked.reserve(text.text.size() + text.text.size() / 2);
    for (const char byte : text.text) {
      if (byte == ' ') {
        marked += mark_;
      } else {
        marked += byte;
      }
    }
    const bool puts = puts_ == Puts::always || (puts_ == Puts::first && text.is_first);
    if (puts && !text.continues && !marked.starts_with(mark_)) marked.insert(0, mark_);
    const TextPiece whole{marked, text.is_first, text.continues};
    if (!splits_) return take(whole);
    Splitter splitter(whole, SplitBehaviour::merged_with_next, false, take);
    for (size_t at = 0; (at = marked.find(mark_, at)) != std::string::npos; at += mark_.size()) {
      splitter.match(at, at + mark_.size());
    }
    splitter.finish();
  }

 private:
  enum class Puts { always, first, never };
  static Puts read_puts(const JsonPart& part) {
    const bool old = part["add_prefix_space"].boolean_or(true);  // of older files
    const std::string scheme = part["prepend_scheme"].text_or(old ? "always" : "never");
    if (scheme == "never") return Puts::never;
    if (!old) part.refuse("add_prefix_space false contradicts prepend_scheme ", printable(scheme));
    if (scheme == "always") return Puts::always;
    if (scheme == "first") return Puts::first;
    part["prepend_scheme"].refuse("\"", printable(scheme), "\" is unknown");
  }
  std::string mark_;
  bool splits_;
  Puts puts_;
};

class DigitsPreTokenizer : public PreTokenizer {
 public:
  explicit DigitsPreTokenizer(const JsonPart& part)
      : behaviour_(part["individual_digits"].boolean_or(false) ? SplitBehaviour::isolated
                                                               : SplitBehaviour::contiguous) {}
  void split(const TextPiece& text, const TakePiece& take) const override {
    split_at_characters(text, behaviour_, take, is_numeric);
  }

 private:
  SplitBehaviour behaviour_;
};

class PunctuationPreTokenizer : public PreTokenizer {
 public:
  explicit PunctuationPreTokenizer(const JsonPart& part)
      : behaviour_(part["behavior"].is_null() ? SplitBehaviour::isolated : read_split_behaviour(part["behavior"])) {}
  void split(const TextPiece& text, const TakePiece& take) const override {
    split_at_characters(text, behaviour_, take, is_punctuation);
  }

 private:
  SplitBehaviour behaviour_;
};

class WhitespaceSplitPreTokenizer : public PreTokenizer {
 public:
  explicit WhitespaceSplitPreTokenizer(const JsonPart&) {}
  void split(const TextPiece& text, const TakePiece& take) const override {
    split_at_characters(text, SplitBehaviour::removed, take, is_white_space);
  }
};

class DelimiterPreTokenizer : public PreTokenizer {
 public:
  explicit DelimiterPreTokenizer(const JsonPart& part) {
    const std::string delimiter = part["delimiter"].text();
    if (delimiter.empty() || first_code_point(delimiter).bytes != delimiter.size()) {
      part["delimiter"].refuse("\"", printable(delimiter), "\" is not one character");
    }
    delimiter_ = first_code_point(delimiter).value;
  }
  void split(const TextPiece& text, const TakePiece& take) const override {
    split_at_characters(text, SplitBehaviour::removed, take,
                        [this](char32_t character) { return character == delimiter_; });
  }

 private:
  char32_t delimiter_;
};

// Words, and runs of what is neither a word nor white space.
class WhitespacePreTokenizer : public PreTokenizer {
 public:
  explicit WhitespacePreTokenizer(const JsonPart&) {}
  void split(const TextPiece& text, const TakePiece& take) const override {
    enum class Kind { space, word, other };
    Kind kind = Kind::space;
    size_t begin = 0;
    const auto give = [&](size_t end) {
      if (kind == Kind::space || begin == end) return;
      take({text.text.substr(begin, end - begin), text.is_first && begin == 0, text.continues && begin == 0});
    };
    for (size_t at = 0; at < text.text.size();) {
      const CodePoint character = first_code_point(text.text.substr(at));
      const Kind now = is_word_character(character.value) ? Kind::word
                       : is_white_space(character.value)  ? Kind::space
                                                          : Kind::other;
      if (now != kind) {
        give(at);
        begin = at;
        kind = now;
      }
      at += character.bytes;
    }
    give(text.text.size());
  }
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(const JsonPart& part) {
    for (const JsonPart& one : part["pretokenizers"].list()) {
      if (MadePreTokenizer made = read_pre_tokenizer(one)) parts_.push_back(std::move(made));
    }
  }
  bool is_byte_level() const override {
    for (const MadePreTokenizer& part : parts_) {
      if (part->is_byte_level()) return true;
    }
    return false;
  }
  bool give_bytes() override {
    for (size_t i = 0; i + 1 < parts_.size(); ++i) {
      if (parts_[i]->is_byte_level()) return false;
    }
    return !parts_.empty() && parts_.back()->give_bytes();
  }
  void split(const TextPiece& text, const TakePiece& take) const override {
    if (parts_.empty()) return take(text);
    std::vector<TakePiece> takes(parts_.size());  // of each part
    takes.back() = take;
    for (size_t i = parts_.size() - 1; i > 0; --i) {
      takes[i - 1] = [this, &takes, i](const TextPiece& piece) { parts_[i]->split(piece, takes[i]); };
    }
    parts_.front()->split(text, takes.front());
  }

 private:
  std::vector<MadePreTokenizer> parts_;
};

constexpr PartKind<MadePreTokenizer> kPreTokenizers[] = {
    {"ByteLevel", make_part<PreTokenizer, ByteLevelPreTokenizer>},
    {"CharDelimiterSplit", make_part<PreTokenizer, DelimiterPreTokenizer>},
    {"Digits", make_part<PreTokenizer, DigitsPreTokenizer>},
    {"Metaspace", make_part<PreTokenizer, MetaspacePreTokenizer>},
    {"Punctuation", make_part<PreTokenizer, PunctuationPreTokenizer>},
    {"Sequence", make_part<PreTokenizer, PreTokenizerSequence>},
    {"Split", make_part<PreTokenizer, SplitPreTokenizer>},
    {"Whitespace", make_part<PreTokenizer, WhitespacePreTokenizer>},
    {"WhitespaceSplit", make_part<PreTokenizer, WhitespaceSplitPreTokenizer>},
};

}  // namespace

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonPart& part) {
  return part.is_null() ? nullptr : read_kind(kPreTokenizers, part);
}

}  // namespace shiftron
