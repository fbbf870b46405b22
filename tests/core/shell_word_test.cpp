// Words of suggested commands, as a shell reads them.
#include "core/shell_word.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace shiftron {
namespace {

std::string read_by_a_shell(const std::string& word) {
  ::setenv("WORD", word.c_str(), 1);
  FILE* const shell = ::popen("bash -c 'eval \"printf %s $WORD\"'", "r");  // the user's: sh may know no $'…'
  std::string text;
  for (int letter; (letter = std::fgetc(shell)) != EOF;) text += static_cast<char>(letter);
  ::pclose(shell);
  return text;
}

TEST(ShellWord, IsReadBackAsItIs) {
  for (const std::string text : {"a b", "it's", "$HOME", "a;b", "*", "~", "#x", "\"q\"", "\xFF", "a\\b", "a\nb", "'",
                                 "\x1b[2J1", "\t'\\", "é\u202E1", "\x7F"}) {
    EXPECT_EQ(read_by_a_shell(shell_word(text)), text);
    EXPECT_NE(shell_word(text), text);
  }
  EXPECT_EQ(shell_word(""), "''");
}

TEST(ShellWord, SteersNoTerminal) {
  EXPECT_EQ(shell_word("\x1b]0;it's é\x07\\"), "$'\\033]0;it\\'s \\303\\251\\007\\\\'");
  EXPECT_EQ(shell_word("é ü"), "'é ü'");
}

TEST(ShellWord, StaysAsItIsWhereAShellKnowsNothingOfIt) {
  for (const std::string text : {"runs/a-1/config.conf", "tp=4,pp=2", "x@y:z_+%"}) EXPECT_EQ(shell_word(text), text);
}

}  // namespace
}  // namespace shiftron
