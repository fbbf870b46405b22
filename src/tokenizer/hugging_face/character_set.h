// Sets of characters in regular expressions of PCRE2.
#pragma once

#include <string>
#include <vector>

namespace shiftron {

// What one character may be: the inside of brackets, and sets that those cannot hold.
struct CharacterSet {
  std::string inside{};
  std::vector<std::string> others{};  // whole expressions of one character
};

// Expressions of one character that is in the set, or is not.
std::string positive(const CharacterSet& set);
std::string negative(const CharacterSet& set);
// The character itself, within brackets or not.
std::string escaped(char32_t letter);

}  // namespace shiftron
