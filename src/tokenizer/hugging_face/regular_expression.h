// Regular expressions as the package `tokenizers` understands them, matched by PCRE2.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

// Read-only after construction; may be used from several threads.
class RegularExpression {
 public:
  // Throws Error(bad_input), naming `where`, if it is wrong or not supported.
  RegularExpression(const std::string& pattern, const JsonPart& where);
  ~RegularExpression();
  RegularExpression(RegularExpression&&) noexcept;
  RegularExpression& operator=(RegularExpression&&) = delete;

  // All matches in valid UTF-8, from left to right, as Oniguruma finds them one after another: an empty match never
  // directly follows another match. Throws Error(bad_input) if a match takes too many steps or too much memory.
  void for_each_match(std::string_view text, const std::function<void(size_t begin, size_t end)>& take) const;

  struct Compiled;

 private:
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace shiftron
