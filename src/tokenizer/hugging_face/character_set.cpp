// See the header.
#include "tokenizer/hugging_face/character_set.h"

#include <cctype>

namespace shiftron {

// What one character may be: the inside of brackets, and sets that those cannot hold.
struct Set {
  std::string inside{};
  std::vector<std::string> others{};  // whole expressions of one character
};

std::string positive(const CharacterSet& set) {
  std::string choices = set.inside.empty() ? "" : "[" + set.inside + "]";
  for (const std::string& other : set.others) choices += (choices.empty() ? "" : "|") + other;
  if (choices.empty()) return "(?!)";
  return set.others.empty() ? choices : "(?:" + choices + ")";
}

std::string negative(const CharacterSet& set) {
  if (set.others.empty()) return set.inside.empty() ? "(?s:.)" : "[^" + set.inside + "]";
  return "(?:(?!" + positive(set) + ")(?s:.))";
}

std::string escaped(char32_t letter) {
  const bool is_plain = letter < 0x80 && (std::isalnum(static_cast<int>(letter)) != 0 || letter == ' ');
  if (is_plain) return std::string(1, static_cast<char>(letter));
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (char32_t rest = letter; rest != 0 || hex.empty(); rest >>= 4) hex.insert(hex.begin(), kDigits[rest & 15]);
  return "\\x{" + hex + "}";
}

}  // namespace shiftron
