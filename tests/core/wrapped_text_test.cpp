// Lines end at blanks before column 100, and count characters, not bytes.
#include "core/wrapped_text.h"

#include <gtest/gtest.h>

namespace shiftron {
namespace {

TEST(WrappedText, BreaksAtBlanks) {
  const std::string word(48, 'a');
  EXPECT_EQ(wrapped("", 4), "\n");
  EXPECT_EQ(wrapped("one two", 4), "one two\n");
  EXPECT_EQ(wrapped(word + " " + word, 3), word + " " + word + "\n");  // ends at column 100
  EXPECT_EQ(wrapped(word + " " + word, 4), word + "\n    " + word + "\n");
  EXPECT_EQ(wrapped(std::string(120, 'b') + " c", 2), std::string(120, 'b') + "\n  c\n");
}

TEST(WrappedText, CountsCharacters) {
  EXPECT_EQ(columns("a…·b"), 4U);
  std::string dots;
  for (int i = 0; i < 48; ++i) dots += "·";
  EXPECT_EQ(wrapped(dots + " " + dots, 3), dots + " " + dots + "\n");
}

}  // namespace
}  // namespace shiftron
