// Folders, patterns and lists of --input.
#include "cli/input_paths.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "expect_error.h"
#include "scratch.h"

namespace shiftron::cli {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<std::string>;

class InputPathsTest : public ::testing::Test {
 protected:
  InputPathsTest() {
    for (const char* folder : {"many/b/deep", "many/.hidden", "none"}) fs::create_directories(scratch_ / folder);
    for (const char* name :
         {"many/b.txt", "many/a.jsonl.GZ", "many/b/z.md", "many/b/deep/c.ndjson.zst", "many/b/deep/d.h5",
          "many/_SUCCESS", "many/.hidden/e.txt", "many/.f.txt", "none/x.parquet"}) {
      scratch_.write(name, "text");
    }
  }
  Paths found(const Paths& words) {
    for (const std::string& word : words) words_.push_back(scratch_ / word);
    Paths paths = input_paths(std::exchange(words_, {})).paths;
    for (std::string& path : paths) path.erase(0, scratch_.path().size() + 1);
    return paths;
  }
  const Paths many_ = {"many/a.jsonl.GZ", "many/b.txt", "many/b/deep/c.ndjson.zst", "many/b/z.md"};
  Scratch scratch_;
  Paths words_;
};

TEST_F(InputPathsTest, AFolderMeansItsFilesInOrder) {
  EXPECT_EQ(found({"many"}), many_);
  ASSERT_EQ(::mkfifo((scratch_ / "many/pipe.txt").c_str(), 0600), 0);  // opening it would wait for a writer
  const InputPaths paths = input_paths({scratch_ / "many", scratch_ / "many/b/z.md"});
  ASSERT_EQ(paths.notes.size(), 1u);
  EXPECT_EQ(paths.notes[0].find((scratch_ / "many") +
                                ": 3 files left out that are not regular or without an ending of text (" +
                                (scratch_ / "many/_SUCCESS") + ")"),
            0u);
  EXPECT_ERROR(input_paths({scratch_ / "none"}), ExitCode::bad_input, "none has no file with an ending of text");
}

TEST_F(InputPathsTest, LinksAreFollowedOnce) {
  fs::create_directory_symlink("..", scratch_ / "many/b/deep/up");
  fs::create_directory_symlink("many", scratch_ / "link");
  fs::create_symlink("b.txt", scratch_ / "many/name.txt");
  Paths with_link = many_;
  with_link.emplace_back("many/name.txt");
  EXPECT_EQ(found({"many"}), with_link);
  EXPECT_EQ(found({"link"}).size(), with_link.size());
}

TEST_F(InputPathsTest, PatternsAreOpenedAsAShellDoes) {
  EXPECT_EQ(found({"many/*.txt", "many/b*"}),
            (Paths{"many/b.txt", "many/b/deep/c.ndjson.zst", "many/b/z.md", "many/b.txt"}));
  scratch_.write("many/[b].txt", "a name, not a pattern");
  EXPECT_EQ(found({"many/[b].txt"}), Paths{"many/[b].txt"});
  EXPECT_ERROR(input_paths({scratch_ / "*.no", scratch_ / "none"}), ExitCode::bad_input,
               "no file matches " + (scratch_ / "*.no"));
  EXPECT_ERROR(input_paths({scratch_ / "*.no", scratch_ / "none"}), ExitCode::bad_input, "none has no file");
}

TEST_F(InputPathsTest, AListHoldsNamesFoldersAndPatterns) {
  const std::string list = scratch_.write(
      "list", (scratch_ / "many/b.txt") + "\r\n\n" + (scratch_ / "many/b") + "\n" + (scratch_ / "many/*.GZ"));
  words_ = {"@" + list};
  EXPECT_EQ(found({}), (Paths{"many/b.txt", "many/b/deep/c.ndjson.zst", "many/b/z.md", "many/a.jsonl.GZ"}));
  EXPECT_ERROR(input_paths({"@" + scratch_.write("empty", "\n")}), ExitCode::bad_input,
               "empty names no file; give one per line");
  EXPECT_ERROR(input_paths({"@" + (scratch_ / "lost")}), ExitCode::bad_input, "lost: No such file");
}

TEST_F(InputPathsTest, OtherNamesStay) {
  EXPECT_EQ(input_paths({"-", "lost.txt"}).paths, (Paths{"-", "lost.txt"}));
}

}  // namespace
}  // namespace shiftron::cli
