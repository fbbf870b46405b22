// {"pattern": …, "content": …} of tokenizer.json, in normalizers and decoders; and patterns alone.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/hugging_face/regular_expression.h"

namespace shiftron {

// {"String": …} or {"Regex": …}.
class Pattern {
 public:
  explicit Pattern(const JsonPart& part);
  // As RegularExpression::for_each_match().
  void for_each_match(std::string_view text, const std::function<void(size_t begin, size_t end)>& take) const;
  bool is_regular_expression() const { return expression_.has_value(); }

 private:
  std::string text_;
  std::optional<RegularExpression> expression_;
};

class Replacement {
 public:
  explicit Replacement(const JsonPart& part);
  void apply(std::string& text) const;

 private:
  Pattern pattern_;
  std::string content_;
};

}  // namespace shiftron
