// Words of commands that messages advise.
#pragma once

#include <string>

namespace shiftron {

// As a shell reads it as one word: in quotes where it has blanks or other characters that a shell knows. What steers a
// terminal, or is no UTF-8, is escaped within $'…', which bash, zsh and ksh read.
std::string shell_word(const std::string& text);

// The command that unpacks a file. Packers take links, and names without their `ending`, on standard input alone.
std::string unpack_command(const std::string& packer, const std::string& ending, const std::string& path);

}  // namespace shiftron
