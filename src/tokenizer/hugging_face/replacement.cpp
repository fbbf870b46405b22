// See the header.
#include "tokenizer/hugging_face/replacement.h"

namespace shiftron {

Pattern::Pattern(const JsonPart& part) {
  const JsonPart text = part["String"], expression = part["Regex"];
  if (text.is_null() == expression.is_null()) part.refuse("has neither or both of String and Regex");
  if (!text.is_null()) text_ = text.text();
  if (!expression.is_null()) expression_.emplace(expression.text(), expression);
}

void Pattern::for_each_match(std::string_view text, const std::function<void(size_t, size_t)>& take) const {
  if (expression_) return expression_->for_each_match(text, take);
  if (text_.empty()) return;
  for (size_t at = 0; (at = text.find(text_, at)) != std::string_view::npos; at += text_.size()) {
    take(at, at + text_.size());
  }
}

Replacement::Replacement(const JsonPart& part) : pattern_(part["pattern"]), content_(part["content"].text()) {
  if (pattern_.is_regular_expression() && content_.find('$') != std::string::npos) {
    part["content"].refuse("\"", printable(content_), "\" names a group of the pattern, which is not supported");
  }
}

void Replacement::apply(std::string& text) const {
  std::string replaced;
  size_t kept = 0;
  bool is_changed = false;
  pattern_.for_each_match(text, [&](size_t begin, size_t end) {
    replaced.append(text, kept, begin - kept).append(content_);
    kept = end;
    is_changed = true;
  });
  if (!is_changed) return;
  replaced.append(text, kept);
  text = std::move(replaced);
}

}  // namespace shiftron
