// A scanner of JSON, written for this because a library's parser either refuses a whole line for the value of
// a key that is not asked for, or refuses bytes that are not UTF-8.
#include "data/json_line.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/foreign_text.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

constexpr uint64_t kEachByte = 0x0101010101010101, kHighBits = 0x8080808080808080;

// In each byte that equals `letter` the high bit is set. Above the lowest one, others may be set wrongly.
constexpr uint64_t equal_bytes(uint64_t bytes, char letter) {
  const uint64_t difference = bytes ^ (kEachByte * static_cast<uint8_t>(letter));
  return (difference - kEachByte) & ~difference & kHighBits;
}

// Position from `at` on of the first quote, backslash or control character; the end if there is none.
size_t find_special(std::string_view text, size_t at) {
  static_assert(std::endian::native == std::endian::little);
  for (; at + sizeof(uint64_t) <= text.size(); at += sizeof(uint64_t)) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + at, sizeof bytes);
    const uint64_t control = (bytes - kEachByte * 0x20) & ~bytes & kHighBits;
    const uint64_t found = equal_bytes(bytes, '"') | equal_bytes(bytes, '\\') | control;
    if (found != 0) return at + static_cast<size_t>(std::countr_zero(found)) / 8;
  }
  while (at < text.size() && text[at] != '"' && text[at] != '\\' && static_cast<uint8_t>(text[at]) >= 0x20) ++at;
  return at;
}

// The number in the four hexadecimal digits at `at`; nothing if they are not all there.
std::optional<uint32_t> four_digits(std::string_view text, size_t at) {
  uint32_t code = 0;
  if (at + 4 > text.size()) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, code, 16);
  return error == std::errc() && end == text.data() + at + 4 ? std::optional(code) : std::nullopt;
}

constexpr bool is_high_surrogate(uint32_t code) {
  return code >= 0xD800 && code < 0xDC00;
}
constexpr bool is_low_surrogate(uint32_t code) {
  return code >= 0xDC00 && code < 0xE000;
}
constexpr uint32_t kReplacement = 0xFFFD;

}  // namespace

JsonLine::JsonLine(std::string_view line, std::string where) : line_(line), where_(std::move(where)) {
  size_t at = 0;
  skip_blanks(at);
  if (at == line_.size()) throw_fault(at, "the line is empty");
  if (line_[at] == '[' || line_[at] == '"') {
    throw_bad_input(where_, ": a ", json_type_name(line_.substr(at)), ", not an object");
  }
  if (line_[at] != '{') throw_fault(at, "an object in braces is missing");
  const size_t begin = at++;
  skip_blanks(at);
  if (at < line_.size() && line_[at] == '}') {
    ++at;
  } else {
    for (bool is_last = false; !is_last;) {
      skip_blanks(at);
      if (at == line_.size()) throw_fault(begin, "the object that begins here does not end");
      if (line_[at] != '"') throw_fault(at, "a key in quotes is missing");
      const std::string_view key = skip_string(at);
      skip_blanks(at);
      if (at == line_.size() || line_[at] != ':') throw_fault(at, "a colon is missing after a key");
      skip_blanks(++at);
      const size_t value = at;
      skip_value(at);
      members_.push_back({key, line_.substr(value, at - value)});
      skip_blanks(at);
      if (at == line_.size()) throw_fault(begin, "the object that begins here does not end");
      if (line_[at] != ',' && line_[at] != '}') throw_fault(at, "a comma or } is missing");
      is_last = line_[at++] == '}';
    }
  }
  skip_blanks(at);
  if (at < line_.size()) throw_fault(at, "more follows after the object; write one object per line");
}

void JsonLine::throw_fault(size_t at, const std::string& reason) const {
  throw_bad_input(where_, ": not JSON: at byte ", at + 1, " of the line, ", reason);
}

void JsonLine::skip_blanks(size_t& at) const {
  while (at < line_.size() && (line_[at] == ' ' || line_[at] == '\t' || line_[at] == '\r' || line_[at] == '\n')) ++at;
}

// From its opening quote to after the closing one; returns what is between them.
std::string_view JsonLine::skip_string(size_t& at) const {
  const size_t begin = ++at;
  while (true) {
    at = find_special(line_, at);
    if (at >= line_.size()) throw_fault(begin - 1, "the string that begins here does not end");
    if (line_[at] == '"') return line_.substr(begin, at++ - begin);
    at += line_[at] == '\\' ? 2 : 1;
  }
}

// A number, true, false, null, or what some programs write in their place: NaN, -Infinity.
void JsonLine::skip_word(size_t& at) const {
  const size_t begin = at;
  const auto belongs = [](char letter) {
    return std::isalnum(static_cast<uint8_t>(letter)) != 0 || letter == '-' || letter == '+' || letter == '.';
  };
  while (at < line_.size() && belongs(line_[at])) ++at;
  if (at == begin)
    throw_fault(at, at == line_.size() ? "the line ends where a value is missing" : "a value is missing");
}

void JsonLine::skip_value(size_t& at) const {
  std::string open;  // brackets
  const size_t outermost = at;
  const auto next = [&] {  // the next character that is not blank
    skip_blanks(at);
    if (at == line_.size()) {
      throw_fault(open.empty() ? at : outermost,
                  open.empty() ? "the line ends where a value is missing" : "the value that begins here does not end");
    }
    return line_[at];
  };
  const auto skip_key = [&] {
    if (next() != '"') throw_fault(at, "a key in quotes is missing");
    skip_string(at);
    if (next() != ':') throw_fault(at, "a colon is missing after a key");
    ++at;
  };
  do {
    const char first = next();
    if (first == '{' || first == '[') {
      open += first;
      ++at;
      if (next() != (first == '{' ? '}' : ']')) {
        if (first == '{') skip_key();
        continue;
      }
    } else if (first == '"') {
      skip_string(at);
    } else {
      skip_word(at);
    }
    while (!open.empty()) {
      const char letter = next();
      const bool in_object = open.back() == '{';
      if (letter != ',' && letter != (in_object ? '}' : ']')) {
        throw_fault(at, in_object ? "a comma or } is missing" : "a comma or ] is missing");
      }
      ++at;
      if (letter == ',') {
        if (in_object) skip_key();
        break;
      }
      open.pop_back();
    }
  } while (!open.empty());
}

std::string JsonLine::decoded_key(std::string_view key) const {
  std::string text;
  uint64_t replaced = 0;
  try {
    append_unescaped(text, key, replaced);
  } catch (const Error&) {  // a bad escape, in a key that is not asked for
    return std::string(key);
  }
  return text;
}

std::optional<std::string_view> JsonLine::find(std::string_view key) const {
  for (size_t i = members_.size(); i-- > 0;) {
    const Member& member = members_[i];
    const bool is_plain = member.key.find('\\') == std::string_view::npos;
    if (is_plain ? member.key == key : decoded_key(member.key) == key) return member.value;
  }
  return std::nullopt;
}

std::string JsonLine::keys() const {
  std::string keys;
  for (const Member& member : members_) {
    keys += (keys.empty() ? "" : ", ") + decoded_key(member.key);
    if (keys.size() > 400) break;  // printable() shows no more
  }
  return printable(keys);
}

std::string JsonLine::text(std::string_view key, uint64_t& replaced) const {
  const std::string_view value = find(key).value();
  if (!value.starts_with('"')) {
    throw_bad_input(where_, ": the value of \"", key, "\" is a ", json_type_name(value), ", not a string");
  }
  std::string text;
  const std::string_view string = value.substr(1, value.size() - 2);
  for (size_t at = 0; (at = find_special(string, at)) < string.size();) {
    if (string[at] != '\\') {
      throw_fault(static_cast<size_t>(string.data() - line_.data()) + at,
                  "a control character within a string; write it as \\uNNNN");
    }
    at += 2;
  }
  append_unescaped(text, string, replaced);
  return text;
}

std::vector<std::string_view> JsonLine::elements(std::string_view key) const {
  const std::string_view list = find(key).value();
  if (!list.starts_with('[')) {
    throw_bad_input(where_, ": the value of \"", key, "\" is a ", json_type_name(list), ", not a list");
  }
  std::vector<std::string_view> elements;
  size_t at = static_cast<size_t>(list.data() - line_.data()) + 1;
  for (skip_blanks(at); line_[at] != ']'; skip_blanks(at)) {
    if (line_[at] == ',') skip_blanks(++at);
    const size_t begin = at;
    skip_value(at);
    elements.push_back(line_.substr(begin, at - begin));
  }
  return elements;
}

void JsonLine::append_unescaped(std::string& text, std::string_view string, uint64_t& replaced) const {
  text.reserve(text.size() + string.size());
  for (size_t at = 0; at < string.size();) {
    const size_t end = std::min(string.find('\\', at), string.size());
    text.append(string, at, end - at);
    at = end == string.size() ? end : append_escape(text, string, end, replaced);
  }
}

// Returns the position after the escape that begins at `at`.
size_t JsonLine::append_escape(std::string& text, std::string_view string, size_t at, uint64_t& replaced) const {
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
  const auto refuse = [&](const std::string& reason) {
    throw_fault(static_cast<size_t>(string.data() - line_.data()) + at, reason);
  };
  const char letter = string[at + 1];  // a string cannot end by a backslash: it would escape the closing quote
  if (letter != 'u') {
    const size_t number = kLetters.find(letter);
    if (number == std::string_view::npos) refuse("an escape that JSON does not have; a backslash is written \\\\");
    text += kMeant[number];
    return at + 2;
  }
  const std::optional<uint32_t> code = four_digits(string, at + 2);
  if (!code) refuse("\\u needs four hexadecimal digits");
  if (!is_high_surrogate(*code) && !is_low_surrogate(*code)) {
    append_utf8(text, *code);
    return at + 6;
  }
  const bool has_second = is_high_surrogate(*code) && string.substr(at + 6, 2) == "\\u";
  const std::optional<uint32_t> low = has_second ? four_digits(string, at + 8) : std::nullopt;
  if (low && is_low_surrogate(*low)) {
    append_utf8(text, 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00));
    return at + 12;
  }
  ++replaced;
  append_utf8(text, kReplacement);
  return at + 6;
}

const char* json_type_name(std::string_view value) {
  const char first = value.empty() ? ' ' : value.front();
  switch (first) {
    case '"':
      return "string";
    case '{':
      return "JSON object";
    case '[':
      return "JSON array";
    case 't':
    case 'f':
      return "boolean";
    case 'n':
      return "null";
    case 'N':
    case 'I':
    case '-':
      return "number";
    default:
      return std::isdigit(static_cast<uint8_t>(first)) != 0 ? "number" : "bare word";
  }
}

}  // namespace shiftron
