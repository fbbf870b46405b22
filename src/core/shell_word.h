// Words of commands that messages advise.
#pragma once

#include <string>

namespace shiftron {

// As a shell reads it as one word: in quotes where it has blanks or other characters that a shell knows.
std::string shell_word(const std::string& text);

}  // namespace shiftron
