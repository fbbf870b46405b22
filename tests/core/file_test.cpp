// Files: exactness, durable replacement, errors with path and reason.
#include "core/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <stdexcept>

#include "core/system_error.h"
#include "expect_error.h"
#include "scratch.h"
#include "small_disk.h"

namespace shiftron {
namespace {

TEST(File, ReadsWhatWasWritten) {
  const Scratch scratch;
  const std::string path = scratch / "file";
  FileDescriptor file = FileDescriptor::create(path);
  file.append("hello world", 11);
  file.write_at(6, "W", 1);
  char text[5] = {};
  file.read_at(6, text, 5);
  EXPECT_EQ(std::string(text, 5), "World");
  EXPECT_EQ(file.size(), 11u);
  file.close();
  EXPECT_EQ(read_file(path), "hello World");
}

TEST(File, ReadPastTheEndNamesTheFile) {
  const Scratch scratch;
  const FileDescriptor file = FileDescriptor::open_for_reading(scratch.write("short", "abc"));
  char text[8];
  EXPECT_ERROR(file.read_at(1, text, 8), ExitCode::crash, scratch / "short: it ends at byte 3");
}

TEST(File, MissingFilesAndDirectoriesAreTheUsersFault) {
  const Scratch scratch;
  EXPECT_ERROR(read_file(scratch / "missing"), ExitCode::bad_input, scratch / "missing: No such file");
  EXPECT_ERROR(read_file(scratch.path()), ExitCode::bad_input, "is a directory");
  std::filesystem::create_symlink(scratch.write("real", "x"), scratch / "link");
  EXPECT_EQ(read_file(scratch / "link"), "x");
}

TEST(File, PipesAndDevicesAreRefusedWithoutWaiting) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(read_file(scratch / "pipe"), ExitCode::bad_input, scratch / "pipe: it is a pipe");
  EXPECT_ERROR(read_file("/dev/zero"), ExitCode::bad_input, "/dev/zero: it is a pipe, a socket or a device");
}

TEST(File, CreateRefusesAnExistingFile) {
  const Scratch scratch;
  const std::string path = scratch.write("old", "x");
  EXPECT_ERROR(FileDescriptor::create(path), ExitCode::crash, "File exists");
  EXPECT_EQ(read_file(path), "x");
}

TEST(File, LimitIsKept) {
  const Scratch scratch;
  EXPECT_EQ(read_file(scratch.write("file", "12345"), 5), "12345");
  EXPECT_ERROR(read_file(scratch / "file", 4), ExitCode::bad_input, "longer than 4");
}

TEST(File, DurableWriteReplacesAndLeavesNothingBehind) {
  const Scratch scratch;
  const std::string path = scratch.write("file", "old");
  write_file_durably(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

TEST(File, WritingWithoutSpaceNamesPathAndReason) {
  FileDescriptor full;
  EXPECT_ERROR(write_file_durably("/proc/none/file", "x"), ExitCode::crash, "/proc/none/file");
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  write_file_durably(disk / "file", "old");
  EXPECT_ERROR(write_file_durably(disk / "file", std::string(2 << 20, 'x')), ExitCode::crash,
               "No space left on device; free space");
  EXPECT_EQ(read_file(disk / "file"), "old");  // and the temporary is gone
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(disk.path()), {}), 1);
  EXPECT_LE(free_disk_space(disk.path()), uint64_t{1} << 20);
}

// The file may be whole and reappear with its mount: a fault of the machine, whose message names the link.
TEST(File, LinksThatLeadNowhereAreNamed) {
  const Scratch scratch;
  scratch.write("file", "text");
  std::filesystem::create_symlink("file", scratch / "link");
  EXPECT_EQ(read_file(scratch / "link"), "text");
  std::filesystem::create_symlink("absent", scratch / "lost");
  std::filesystem::create_symlink("lost", scratch / "second");
  std::filesystem::create_symlink("ring", scratch / "ring");
  std::filesystem::create_symlink("file/inner", scratch / "through");
  const auto expect_refused = [&](const std::string& path, const std::string& part) {
    try {
      read_file(scratch / path);
      ADD_FAILURE() << path;
    } catch (const SystemError& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr(part));
    }
  };
  expect_refused("lost", scratch / "lost is a symbolic link to absent, which does not exist");
  expect_refused("lost/inner/file", scratch / "lost is a symbolic link to absent, which does not exist");
  expect_refused("second", scratch / "second is a symbolic link to lost, which does not exist");
  expect_refused("through", scratch / "through is a symbolic link to file/inner, which does not exist");
  expect_refused("ring", scratch / "ring is a symbolic link to ring, which is part of a loop");
  EXPECT_ERROR(read_file(scratch / "link/inner"), ExitCode::bad_input, "Not a directory");  // the link is sound
}

TEST(File, EachFaultOfWritingHasItsOwnAdvice) {
  EXPECT_ERROR(write_file_durably("/sys/kernel/file", "x"), ExitCode::crash,
               "Permission denied; change its permissions");
  EXPECT_ERROR(write_file_durably("/none/file", "x"), ExitCode::crash, "No such file or directory; check the path");
}

// That they survive a power loss: tests/system/check_crash_images.py.
TEST(File, DirectoriesAreMadeWithThoseAbove) {
  const Scratch scratch;
  for (const char* name : {"a/b/c", "a/d/", "./e//f/.", "a"}) {
    create_directories_durably(scratch / name);
    EXPECT_TRUE(std::filesystem::is_directory(scratch / name)) << name;
  }
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  create_directories_durably("relative");
  create_directories_durably(".");
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::is_directory(scratch / "relative"));
  scratch.write("file", "");
  EXPECT_THROW(create_directories_durably(scratch / "file/below"), std::filesystem::filesystem_error);
}

// After a link, ".." is the folder above the link's target.
TEST(File, DirectoriesBehindALinkAreMadeWhereItLeads) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "there/inner");
  std::filesystem::create_directory_symlink(scratch / "there/inner", scratch / "link");
  for (int again = 0; again < 2; ++again) {
    create_directories_durably(scratch / "link/../a/b/c");
    EXPECT_TRUE(std::filesystem::is_directory(scratch / "there/a/b/c"));
    EXPECT_FALSE(std::filesystem::exists(scratch / "a"));
  }
}

// What then opens the path goes through the folder in front of "..", though nothing is made below it.
TEST(File, DirectoriesInFrontOfDotDotAreMadeToo) {
  const Scratch scratch;
  create_directories_durably(scratch / "a/../b/./c/..");
  scratch.write("a/../b/c/../x", "");
  EXPECT_TRUE(std::filesystem::is_regular_file(scratch / "b/x"));
}

TEST(File, DurableWriteKeepsPermissions) {
  const Scratch scratch;
  const std::string path = scratch.write("file", "old");
  for (const mode_t permissions : {0600, 0664, 0444}) {
    ASSERT_EQ(::chmod(path.c_str(), permissions), 0);
    write_file_durably(path, "new");
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, permissions);
  }
}

TEST(File, ANameThatIsTakenIsNotRenamedTo) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "from");
  std::filesystem::create_directory(scratch / "empty");
  write_file_durably(scratch / "file", "text");
  for (const char* taken : {"empty", "file"}) {
    EXPECT_ERROR(rename_to_new_name_durably(scratch / "from", scratch / taken), ExitCode::bad_input, "already exists");
  }
  rename_to_new_name_durably(scratch / "from", scratch / "to");
  EXPECT_TRUE(std::filesystem::is_directory(scratch / "to"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "from"));
  EXPECT_ERROR(rename_to_new_name_durably(scratch / "from", scratch / "other"), ExitCode::crash, "rename to");
}

TEST(File, ParentDirectory) {
  EXPECT_EQ(parent_directory("a/b/c"), "a/b");
  EXPECT_EQ(parent_directory("/c"), "/");
  EXPECT_EQ(parent_directory("c"), ".");
}

TEST(File, DurableWriteFollowsLinks) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "there");
  scratch.write("there/file", "old");
  std::filesystem::create_symlink("there/file", scratch / "second");
  std::filesystem::create_symlink(scratch / "second", scratch / "first");
  write_file_durably(scratch / "first", "new");
  EXPECT_EQ(read_file(scratch / "there/file"), "new");
  std::filesystem::create_symlink("there/missing", scratch / "dangling");
  write_file_durably(scratch / "dangling", "made");
  EXPECT_EQ(read_file(scratch / "there/missing"), "made");
  std::filesystem::create_symlink("circle", scratch / "circle");
  EXPECT_ERROR(write_file_durably(scratch / "circle", "x"), ExitCode::crash, "levels of symbolic links");
  for (const char* name : {"first", "second", "dangling", "circle"}) {
    EXPECT_TRUE(std::filesystem::is_symlink(scratch / name)) << name;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch / "there"), {}), 2);
}

TEST(File, DurableWriteGoesIntoAPipe) {
  const Scratch scratch;
  const std::string path = scratch / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_file_durably(path, "through");
  char bytes[16] = {};
  EXPECT_EQ(::read(reader, bytes, sizeof bytes), 7);
  ::close(reader);
  EXPECT_STREQ(bytes, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

// Its own device nodes: a mistake here destroys none of the machine's.
TEST(File, DurableWriteGoesIntoADevice) {
  const Scratch scratch;
  const std::string null = scratch / "null", full = scratch / "full";
  if (::mknod(null.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) GTEST_SKIP() << "no right to make devices";
  ASSERT_EQ(::mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)), 0);
  std::filesystem::create_symlink("full", scratch / "link");
  const int opened = ::open(null.c_str(), O_WRONLY);
  if (opened < 0) GTEST_SKIP() << "no devices in this file system";
  ::close(opened);
  write_file_durably(null, "nowhere");
  EXPECT_ERROR(write_file_durably(full, "x"), ExitCode::crash, "No space left");
  EXPECT_ERROR(write_file_durably(scratch / "link", "x"), ExitCode::crash, "No space left");
  EXPECT_TRUE(std::filesystem::is_character_file(null));
  EXPECT_TRUE(std::filesystem::is_character_file(full));
  EXPECT_TRUE(std::filesystem::is_symlink(scratch / "link"));
}

// What the user can fix is reported as it is; for anything else the message names the option to change.
TEST(File, AnUnwritablePlaceKeepsTheUsersOwnFault) {
  const auto told = [](const std::exception_ptr& thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& reason) {
      throw_unwritable("--output", "there", reason);
    }
  };
  const auto fault = [](const char* text, ExitCode code) { return std::make_exception_ptr(Error(text, code)); };
  const std::string wrapped = "--output there cannot be written (no room); choose another path, or free space there";
  try {
    told(fault("is in use", ExitCode::bad_input));
  } catch (const Error& own) {
    EXPECT_STREQ(own.what(), "is in use");
    EXPECT_EQ(own.code(), ExitCode::bad_input);
  }
  EXPECT_ERROR(told(fault("no room", ExitCode::crash)), ExitCode::bad_input, wrapped);
  EXPECT_ERROR(told(std::make_exception_ptr(std::runtime_error("no room"))), ExitCode::bad_input, wrapped);
}

}  // namespace
}  // namespace shiftron
