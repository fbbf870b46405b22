// One holder at a time; a lock ends with its holder, or when its file is removed.
#include "core/file_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "scratch.h"

namespace shiftron {
namespace {

TEST(FileLock, HasOneHolder) {
  const Scratch scratch;
  const std::string path = scratch / "lock";
  {
    const std::optional<FileLock> first = FileLock::take(path);
    ASSERT_TRUE(first);
    EXPECT_FALSE(FileLock::take(path));
    const pid_t child = ::fork();
    if (child == 0) ::_exit(FileLock::take(path) ? 1 : 0);
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(FileLock::take(path));
}

TEST(FileLock, EndsWithItsProcess) {
  const Scratch scratch;
  const std::string path = scratch / "lock";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::optional<FileLock> lock = FileLock::take(path);
    ::_exit(lock ? 7 : 0);  // without a destructor
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(FileLock::take(path));
}

TEST(FileLock, ADirectoryThatHasGoneIsNotMadeAgain) {
  const Scratch scratch;
  EXPECT_FALSE(FileLock::take(scratch / "gone/lock"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "gone"));
}

TEST(FileLock, AFileThatHasGoneIsMadeWhereAskedAlone) {
  const Scratch scratch;
  EXPECT_FALSE(FileLock::take(scratch / "lock", false));
  EXPECT_FALSE(std::filesystem::exists(scratch / "lock"));
  EXPECT_TRUE(FileLock::take(scratch / "lock"));
  EXPECT_TRUE(FileLock::take(scratch / "lock", false));
}

}  // namespace
}  // namespace shiftron
