// What system exceptions become: an error that the user can fix, or a fault of the machine.
#include "core/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <system_error>

#include "core/system_error.h"

namespace shiftron {
namespace {

Error error_of(std::errc code) {
  return as_error(std::filesystem::filesystem_error("cannot", "some/path", std::make_error_code(code)));
}

TEST(AsError, APathThatAnotherWouldReplaceIsTheUsers) {
  for (const std::errc code :
       {std::errc::no_such_file_or_directory, std::errc::not_a_directory, std::errc::too_many_symbolic_link_levels,
        std::errc::filename_too_long, std::errc::permission_denied, std::errc::read_only_file_system}) {
    EXPECT_EQ(error_of(code).code(), ExitCode::bad_input);
    EXPECT_THAT(error_of(code).what(), ::testing::StartsWith("some/path: "));
    EXPECT_THAT(error_of(code).what(), ::testing::ContainsRegex("; (check the path|change its perm|choose another)"));
  }
}

TEST(AsError, ADiskThatIsFullOrFailsIsNoFaultOfThePath) {
  for (const auto& [code, advice] : {std::pair{std::errc::no_space_on_device, "; free space there"},
                                     std::pair{std::errc::file_too_large, "; raise the file size limit"},
                                     std::pair{std::errc::too_many_files_open, "; raise the open file limit"},
                                     std::pair{std::errc::io_error, "; the disk or its connection has failed"}}) {
    EXPECT_EQ(error_of(code).code(), ExitCode::crash);
    EXPECT_THAT(error_of(code).what(), ::testing::HasSubstr(advice));
  }
}

TEST(AsError, WhatIsNotKnownIsACrash) {
  EXPECT_EQ(as_error(std::runtime_error("odd")).code(), ExitCode::crash);
  EXPECT_EQ(as_error(std::bad_alloc()).code(), ExitCode::bad_input);
  EXPECT_EQ(as_error(Error("reported", ExitCode::stopped)).code(), ExitCode::stopped);
}

}  // namespace
}  // namespace shiftron
