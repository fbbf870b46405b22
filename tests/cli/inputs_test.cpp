// Files of --input: what is reported for one that is named twice.
#include "cli/inputs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "scratch.h"

namespace shiftron::cli {
namespace {

TEST(Inputs, AFileThatIsNamedTwiceIsTold) {
  const Scratch scratch;
  const std::string a = scratch.write("a.jsonl", "{}"), b = scratch.write("b.jsonl", "{}"), link = scratch / "link";
  std::filesystem::create_symlink(a, link);
  std::filesystem::create_hard_link(a, scratch / "hard");
  EXPECT_EQ(repeated_inputs({a, b, scratch / "missing", scratch / "missing"}), "");
  for (const std::string& other : {a, link, scratch / "hard", scratch / "./a.jsonl"}) {
    EXPECT_EQ(repeated_inputs({a, b, other}).find(other + " was given before"), 0U) << other;
  }
  EXPECT_EQ(repeated_inputs({a, b, a, link, b}).find(a + " and 2 more of --input were given before"), 0U);
}

}  // namespace
}  // namespace shiftron::cli
