// Words of advised commands, as a shell reads them.
#include "core/shell_word.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace shiftron {
namespace {

std::string read_by_a_shell(const std::string& word) {
  FILE* const shell = ::popen(("printf %s " + word).c_str(), "r");
  std::string text;
  for (int letter; (letter = std::fgetc(shell)) != EOF;) text += static_cast<char>(letter);
  ::pclose(shell);
  return text;
}

TEST(ShellWord, IsReadBackAsItIs) {
  for (const std::string text : {"a b", "it's", "$HOME", "a;b", "*", "~", "#x", "\"q\"", "\xFF", "a\\b", "a\nb", "'"}) {
    EXPECT_EQ(read_by_a_shell(shell_word(text)), text);
    EXPECT_NE(shell_word(text), text);
  }
  EXPECT_EQ(shell_word(""), "''");
}

TEST(ShellWord, StaysAsItIsWhereAShellKnowsNothingOfIt) {
  for (const std::string text : {"runs/a-1/config.conf", "tp=4,pp=2", "x@y:z_+%"}) EXPECT_EQ(shell_word(text), text);
}

}  // namespace
}  // namespace shiftron
