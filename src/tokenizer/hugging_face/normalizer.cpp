// The kinds of normalizers, and their table.
#include "tokenizer/hugging_face/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <vector>

#include "core/check.h"
#include "tokenizer/hugging_face/character_classes.h"
#include "tokenizer/hugging_face/code_points.h"
#include "tokenizer/hugging_face/read_kind.h"
#include "tokenizer/hugging_face/replacement.h"

namespace shiftron {
namespace {

using MadeNormalizer = std::unique_ptr<const Normalizer>;

class UnicodeNormalizer : public Normalizer {
 public:
  using Get = const icu::Normalizer2* (*)(UErrorCode&);
  explicit UnicodeNormalizer(Get get) {
    UErrorCode error = U_ZERO_ERROR;
    form_ = get(error);
    if (U_FAILURE(error)) throw_crash("ICU has no normalisation data: ", u_errorName(error));
  }
  // The package has tables of Unicode 11: characters that decompose since then stay as they are.
  void apply(std::string& text, bool) const override {
    if (text.size() > size_t{INT32_MAX})
      throw_bad_input("a text of ", text.size(), " bytes is too long to be normalised");
    UErrorCode error = U_ZERO_ERROR;
    if (form_->isNormalizedUTF8(text, error) && U_SUCCESS(error)) return;
    std::string normal;
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
      const CodePoint character = first_code_point(std::string_view(text).substr(at));
      if (is_later_than_unicode_9(character.value)) {
        append_normal(normal, std::string_view(text).substr(begin, at - begin));
        normal.append(text, at, character.bytes);
        begin = at + character.bytes;
      }
      at += character.bytes;
    }
    append_normal(normal, std::string_view(text).substr(begin));
    text = std::move(normal);
  }

 private:
  static bool is_later_than_unicode_9(char32_t character) {
    if (character < 0x80) return false;
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(character), age);
    return age[0] > 9;
  }
  void append_normal(std::string& normal, std::string_view text) const {
    UErrorCode error = U_ZERO_ERROR;
    std::string own;
    icu::StringByteSink<std::string> sink(&own);
    form_->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr, error);
    if (U_FAILURE(error)) throw_crash("ICU cannot normalise a text of ", text.size(), " bytes: ", u_errorName(error));
    normal += own;
  }
  const icu::Normalizer2* form_;
};

template <UnicodeNormalizer::Get get>
MadeNormalizer unicode_form(const JsonPart&) {
  return std::make_unique<UnicodeNormalizer>(get);
}

class ReplaceNormalizer : public Normalizer {
 public:
  explicit ReplaceNormalizer(const JsonPart& part) : replacement_(part) {}
  void apply(std::string& text, bool) const override { replacement_.apply(text); }

 private:
  Replacement replacement_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(const JsonPart& part) : text_(part["prepend"].text()) {}
  void apply(std::string& text, bool continues) const override {
    if (!continues && !text.empty()) text.insert(0, text_);
  }

 private:
  std::string text_;
};

class StripNormalizer : public Normalizer {
 public:
  explicit StripNormalizer(const JsonPart& part)
      : left_(part["strip_left"].boolean()), right_(part["strip_right"].boolean()) {}
  void apply(std::string& text, bool) const override {
    std::string_view rest = text;
    while (left_ && !rest.empty() && is_white_space(first_code_point(rest).value)) {
      rest.remove_prefix(first_code_point(rest).bytes);
    }
    while (right_ && !rest.empty() && is_white_space(last_code_point(rest).value)) {
      rest.remove_suffix(last_code_point(rest).bytes);
    }
    text = std::string(rest);
  }

 private:
  bool left_, right_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  explicit LowercaseNormalizer(const JsonPart&) {}
  void apply(std::string& text, bool) const override {
    std::string lower;
    lower.reserve(text.size());
    for (std::string_view rest = text; !rest.empty();) {
      const CodePoint letter = first_code_point(rest);
      lower += lower_case(letter.value);
      rest.remove_prefix(letter.bytes);
    }
    text = std::move(lower);
  }
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(const JsonPart& part) : place_(part.place()) {
    for (const JsonPart& one : part["normalizers"].list()) parts_.push_back(read_normalizer(one));
  }
  void apply(std::string& text, bool continues) const override {
    constexpr size_t kMostGrowth = 1000;  // replacements of replacements
    const size_t most = kMostGrowth * (text.size() + kMostGrowth);
    for (const MadeNormalizer& part : parts_) {
      if (part) part->apply(text, continues);
      if (text.size() > most) throw_bad_input(place_, ": makes a text more than ", kMostGrowth, " times as long");
    }
  }

 private:
  std::vector<MadeNormalizer> parts_;
  std::string place_;
};

constexpr PartKind<MadeNormalizer> kNormalizers[] = {
    {"Lowercase", make_part<const Normalizer, LowercaseNormalizer>},
    {"NFC", unicode_form<icu::Normalizer2::getNFCInstance>},
    {"NFD", unicode_form<icu::Normalizer2::getNFDInstance>},
    {"NFKC", unicode_form<icu::Normalizer2::getNFKCInstance>},
    {"NFKD", unicode_form<icu::Normalizer2::getNFKDInstance>},
    {"Prepend", make_part<const Normalizer, PrependNormalizer>},
    {"Replace", make_part<const Normalizer, ReplaceNormalizer>},
    {"Sequence", make_part<const Normalizer, NormalizerSequence>},
    {"Strip", make_part<const Normalizer, StripNormalizer>},
};

}  // namespace

std::unique_ptr<const Normalizer> read_normalizer(const JsonPart& part) {
  return part.is_null() ? nullptr : read_kind(kNormalizers, part);
}

}  // namespace shiftron
