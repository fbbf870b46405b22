// Python's string functions, with ICU where Unicode tables are needed.
#include "evaluate/tasks/python_text.h"

#include <unicode/brkiter.h>
#include <unicode/locid.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <memory>

#include "core/check.h"
#include "tokenizer/utf8.h"

namespace shiftron::python {
namespace {

constexpr int64_t kMostDigits = 4300;  // of int()

icu::UnicodeString unicode(std::string_view text) {
  CHECK(text.size() < size_t{1} << 30, "a text of ", text.size(), " bytes is too long");
  return icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

std::string utf8_of(const icu::UnicodeString& text) {
  std::string bytes;
  text.toUTF8String(bytes);
  return bytes;
}

std::unique_ptr<icu::RegexMatcher> matcher(const std::string& pattern, const icu::UnicodeString& text) {
  UErrorCode status = U_ZERO_ERROR;
  auto result = std::make_unique<icu::RegexMatcher>(unicode(pattern), text, UREGEX_UNIX_LINES, status);
  CHECK(U_SUCCESS(status), "the pattern ", pattern, ": ", u_errorName(status));
  result->setStackLimit(0, status);
  return result;
}

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = utf8_length(text);
    const auto first = static_cast<uint8_t>(text[0]);
    char32_t character = 0xFFFD;
    if (bytes == 1) character = first;
    if (bytes > 1) {
      character = first & (0x7F >> bytes);
      for (size_t i = 1; i < bytes; ++i) character = (character << 6) | (static_cast<uint8_t>(text[i]) & 0x3F);
    }
    result += character;
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return result;
}

std::string utf8(std::u32string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (const char32_t c : text) append_utf8(bytes, c);
  return bytes;
}

int64_t length(std::string_view text) {
  return static_cast<int64_t>(code_points(text).size());
}

std::string strip_left(std::string_view text) {
  return std::string(text.substr(leading_space(text)));
}

std::string strip_right(std::string_view text) {
  return std::string(text.substr(0, text.size() - trailing_space(text)));
}

std::string strip(std::string_view text) {
  return strip_right(strip_left(text));
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const icu::UnicodeString whole = unicode(text);
  icu::UnicodeString first(whole, 0, whole.moveIndex32(0, 1));
  // The whole text is converted to lower case, because a sigma depends on its neighbours; a first character does not.
  icu::UnicodeString lower = whole;
  lower.toLower(icu::Locale::getRoot());
  icu::UnicodeString lower_first = first;
  lower_first.toLower(icu::Locale::getRoot());
  first.toTitle(nullptr, icu::Locale::getRoot());
  return utf8_of(first + icu::UnicodeString(lower, lower_first.length()));
}

std::string lower(std::string_view text) {
  icu::UnicodeString whole = unicode(text);
  return utf8_of(whole.toLower(icu::Locale::getRoot()));
}

std::string replace(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t at; (at = text.find(from)) != std::string_view::npos;) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (size_t at; (at = text.find(separator)) != std::string_view::npos;) {
    parts.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.emplace_back(text);
  return parts;
}

int64_t count_split_by_space(std::string_view text) {
  int64_t parts = 1;
  bool in_space = false;
  for (const char32_t character : code_points(text)) {
    const bool space = is_space(character);
    if (space && !in_space) ++parts;
    in_space = space;
  }
  return parts;
}

std::string substitute(const std::string& pattern, const std::string& replacement, std::string_view text) {
  const icu::UnicodeString subject = unicode(text);
  UErrorCode status = U_ZERO_ERROR;
  const icu::UnicodeString result = matcher(pattern, subject)->replaceAll(unicode(replacement), status);
  CHECK(U_SUCCESS(status), "the pattern ", pattern, ": ", u_errorName(status));
  return utf8_of(result);
}

std::optional<std::string> first_group(const std::string& pattern, std::string_view text) {
  const icu::UnicodeString subject = unicode(text);
  const auto match = matcher(pattern, subject);
  UErrorCode status = U_ZERO_ERROR;
  if (!match->find(status)) return std::nullopt;
  const std::string group = utf8_of(match->group(1, status));
  CHECK(U_SUCCESS(status), "the pattern ", pattern, ": ", u_errorName(status));
  return group;
}

std::vector<std::vector<std::string>> find_all(const std::string& pattern, std::string_view text) {
  const icu::UnicodeString subject = unicode(text);
  const auto match = matcher(pattern, subject);
  UErrorCode status = U_ZERO_ERROR;
  const int32_t groups = match->groupCount();
  std::vector<std::vector<std::string>> found;
  while (match->find(status)) {
    std::vector<std::string>& texts = found.emplace_back();
    for (int32_t group = std::min(groups, 1); group <= groups; ++group) {
      texts.push_back(utf8_of(match->group(group, status)));
    }
  }
  CHECK(U_SUCCESS(status), "the pattern ", pattern, ": ", u_errorName(status));
  return found;
}

std::optional<std::string> pattern_fault(const std::string& pattern) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError place{};
  const std::unique_ptr<icu::RegexPattern> compiled(
      icu::RegexPattern::compile(unicode(pattern), UREGEX_UNIX_LINES, place, status));
  if (U_SUCCESS(status)) return std::nullopt;
  return std::string(u_errorName(status)) + " at character " + std::to_string(place.offset);
}

std::string repr(std::string_view text) {
  const bool in_double = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char32_t quote = in_double ? U'"' : U'\'';
  std::u32string result(1, quote);
  const auto escaped = [&](char32_t letter, char32_t character, int digits) {
    result += {U'\\', letter};
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
      result += U"0123456789abcdef"[(character >> shift) & 0xF];
    }
  };
  for (const char32_t character : code_points(text)) {
    constexpr std::u32string_view kNamed = U"\t\n\r";
    constexpr uint32_t kUnprintable = U_GC_C_MASK | U_GC_Z_MASK;
    if (const size_t named = kNamed.find(character); named != std::u32string_view::npos) {
      result += {U'\\', U"tnr"[named]};
    } else if (character == quote || character == U'\\') {
      result += {U'\\', character};
    } else if (character == U' ' || !(U_GET_GC_MASK(static_cast<UChar32>(character)) & kUnprintable)) {
      result += character;
    } else if (character < 0x100) {
      escaped(U'x', character, 2);
    } else if (character < 0x10000) {
      escaped(U'u', character, 4);
    } else {
      escaped(U'U', character, 8);
    }
  }
  return utf8(result + quote);
}

std::string repr(const std::vector<std::string>& texts) {
  std::string inside;
  for (const std::string& text : texts) inside += (inside.empty() ? "" : ", ") + repr(text);
  return "[" + inside + "]";
}

bool is_integer(std::string_view text) {
  std::u32string characters = code_points(strip(text));
  if (!characters.empty() && (characters[0] == U'+' || characters[0] == U'-')) characters.erase(0, 1);
  int64_t digits = 0;
  bool after_digit = false;  // an underscore may follow
  for (const char32_t character : characters) {
    if (character == U'_') {
      if (!after_digit) return false;
      after_digit = false;
      continue;
    }
    if (u_charType(static_cast<UChar32>(character)) != U_DECIMAL_DIGIT_NUMBER) return false;
    ++digits;
    after_digit = true;
  }
  return after_digit && digits <= kMostDigits;
}

}  // namespace shiftron::python
