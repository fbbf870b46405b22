// Words of PTX's text, one at a time.
#include "cuda/ptx_words.h"

#include <cctype>
#include <charconv>
#include <sstream>
#include <string_view>

#include "core/check.h"

namespace shiftron::machine::ptx {

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) parts.push_back(part);
  return parts;
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n\r"), last = text.find_last_not_of(" \t\n\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::string without_comments(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) i = text.find('\n', i);
    if (i == std::string::npos) break;
    if (text.compare(i, 2, "/*") == 0) {
      i = text.find("*/", i);
      CHECK(i != std::string::npos, "a comment without end");
      ++i;
      continue;
    }
    out += text[i];
  }
  return out;
}

std::vector<std::string> listed(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char letter : text) {
    if (letter == '{' || letter == '[' || letter == '(') ++depth;
    if (letter == '}' || letter == ']' || letter == ')') --depth;
    if (letter == ',' && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
    } else {
      part += letter;
    }
  }
  if (!trimmed(part).empty()) parts.push_back(trimmed(part));
  return parts;
}

std::optional<Type> type_of(const std::string& word) {
  if (word == "pred") return Type{Kind::predicate, 1};
  if (word == "bf16") return Type{Kind::bfloat16, 2};
  if (word.size() < 2 || std::string_view("busf").find(word[0]) == std::string_view::npos) return std::nullopt;
  const std::string bits = word.substr(1);
  if (bits != "8" && bits != "16" && bits != "32" && bits != "64") return std::nullopt;
  const Kind kind = word[0] == 'b'   ? Kind::bits
                    : word[0] == 'u' ? Kind::unsigned_integer
                    : word[0] == 's' ? Kind::signed_integer
                                     : Kind::floating;
  return Type{kind, static_cast<uint8_t>(std::stoi(bits) / 8)};
}

std::optional<Special> special_of(const std::string& word) {
  return named<Special>(word, {{"%tid.x", Special::tid_x},       {"%tid.y", Special::tid_y},
                               {"%tid.z", Special::tid_z},       {"%ntid.x", Special::ntid_x},
                               {"%ntid.y", Special::ntid_y},     {"%ntid.z", Special::ntid_z},
                               {"%ctaid.x", Special::ctaid_x},   {"%ctaid.y", Special::ctaid_y},
                               {"%ctaid.z", Special::ctaid_z},   {"%nctaid.x", Special::nctaid_x},
                               {"%nctaid.y", Special::nctaid_y}, {"%nctaid.z", Special::nctaid_z},
                               {"%laneid", Special::laneid}});
}

std::optional<int64_t> number_of(const std::string& word) {
  const bool negative = word.starts_with('-');
  std::string digits = word.substr(negative ? 1 : 0);
  if (digits.empty() || std::isdigit(static_cast<unsigned char>(digits[0])) == 0) return std::nullopt;
  if (digits.ends_with('U')) digits.pop_back();
  int base = 10;
  size_t from = 0;
  for (const char* prefix : {"0x", "0f", "0F", "0d", "0D"}) {
    if (digits.starts_with(prefix)) base = 16, from = 2;
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data() + from, digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return static_cast<int64_t>(negative ? 0 - value : value);
}

}  // namespace shiftron::machine::ptx
