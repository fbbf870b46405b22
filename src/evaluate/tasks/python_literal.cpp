// The part of Python's literals that occurs in answers of MATH, where intervals look like lists. Complex numbers,
// strings and dictionaries are left unchanged.
#include "evaluate/tasks/python_literal.h"

#include <charconv>
#include <optional>
#include <vector>

#include "evaluate/tasks/python_json.h"

namespace shiftron::python {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // The value as Python writes it; nothing if the text is not such a value.
  std::optional<std::string> all() {
    auto value = any();
    skip_space();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (next() == ' ' || next() == '\t' || next() == '\n' || next() == '\r' || next() == '\f') ++at_;
  }

  std::optional<std::string> any() {
    skip_space();
    if (next() == '[') return sequence(']');
    if (next() == '(') return sequence(')');
    return number();
  }

  std::optional<std::string> sequence(char close) {
    std::string inside;
    size_t count = 0;
    bool comma = true;  // an element may follow
    ++at_;
    for (skip_space(); next() != close; skip_space()) {
      const auto element = comma ? any() : std::nullopt;
      if (!element) return std::nullopt;
      inside += (count++ > 0 ? ", " : "") + *element;
      skip_space();
      comma = next() == ',';
      if (comma) ++at_;
    }
    ++at_;
    if (close == ']') return "[" + inside + "]";
    if (count == 1 && !comma) return inside;  // parentheses around one value
    return "(" + inside + (count == 1 ? ",)" : ")");
  }

  // Digits, without the single underscores that may separate them.
  std::string digits() {
    std::string result;
    while (is_digit(next()) ||
           (next() == '_' && !result.empty() && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      if (next() != '_') result += next();
      ++at_;
    }
    return result;
  }

  std::optional<std::string> number() {
    std::string sign;
    if (next() == '-' || next() == '+') {
      sign = next() == '-' ? "-" : "";
      ++at_;
      skip_space();
    }
    std::string whole = digits();
    bool real = false;
    std::string text = whole;
    if (next() == '.') {
      ++at_;
      real = true;
      const std::string fraction = digits();
      if (whole.empty() && fraction.empty()) return std::nullopt;
      text = (whole.empty() ? "0" : whole) + "." + (fraction.empty() ? "0" : fraction);
    }
    if (text.empty()) return std::nullopt;
    if (next() == 'e' || next() == 'E') {
      ++at_;
      real = true;
      text += 'e';
      if (next() == '-' || next() == '+') text += text_[at_++];
      const std::string exponent = digits();
      if (exponent.empty()) return std::nullopt;
      text += exponent;
    }
    if (real) {
      double value = 0;
      const std::string signed_text = sign + text;
      const auto [end, error] = std::from_chars(signed_text.data(), signed_text.data() + signed_text.size(), value);
      if (error != std::errc()) return std::nullopt;
      return repr(value);
    }
    const size_t first = whole.find_first_not_of('0');
    if (first == std::string::npos) return "0";
    if (first > 0) return std::nullopt;
    return sign + whole;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string target_text(std::string_view target) {
  if (target.size() < 2 || !target.starts_with('[') || !target.ends_with(']')) return std::string(target);
  return Reader(target).all().value_or(std::string(target));
}

}  // namespace shiftron::python
