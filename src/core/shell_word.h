// Words of commands that messages recommend.
#pragma once

#include <string>

namespace shiftron {

// `text` as one word for a shell: quoted if it has blanks or other special characters. What controls a terminal, or is
// invalid UTF-8, is escaped within $'…', which bash, zsh and ksh read.
std::string shell_word(const std::string& text);

// The command that unpacks a file. Packers accept links, and names without their `ending`, only on standard input.
std::string unpack_command(const std::string& packer, const std::string& ending, const std::string& path);

}  // namespace shiftron
