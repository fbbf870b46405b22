// `shiftron tokenizer export`: where it writes, and how disk errors end.
#include <algorithm>
#include <iostream>
#include <sstream>

#include "checkpoint/fixture.h"
#include "cli/dispatch.h"
#include "data/fixture.h"
#include "expect_error.h"
#include "small_disk.h"

namespace shiftron::cli {
namespace {

using namespace shiftron::testing;
using ::testing::HasSubstr;

class TokenizerExport : public ::testing::Test {
 protected:
  void SetUp() override { write_text(model_, example_model()); }
  void run(const std::string& output) const {
    std::ostringstream text;
    std::streambuf* const before = std::cout.rdbuf(text.rdbuf());
    struct Back {
      std::streambuf* before;
      ~Back() { std::cout.rdbuf(before); }
    } const back{before};
    EXPECT_EQ(dispatch(tokenizer_commands(), {"tokenizer", "export", model_, "--output", output}), 0);
  }
  TemporaryDirectory directory_;
  const std::string model_ = directory_.path() + "/tokenizer.model", out_ = directory_.path() + "/a/out";
};

TEST_F(TokenizerExport, ASlashBehindTheNameAndFoldersThatAreMissing) {
  run(out_ + "/");
  EXPECT_EQ(names_in(out_), (std::vector<std::string>{"tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(names_in(directory_.path() + "/a"), std::vector<std::string>{"out"});
  EXPECT_EQ(error_of([&] { run(out_); }).code(), ExitCode::bad_input);
}

TEST_F(TokenizerExport, AFullDiskIsNoBadInput) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "may not mount";
  std::string rest(4096, 'x');
  while (free_disk_space(disk.path()) > 8192) {
    FileDescriptor file = FileDescriptor::open_for_appending(disk / "rest");
    file.append(rest.data(), rest.size());
  }
  const Error error = error_of([&] { run(disk / "out"); });
  EXPECT_EQ(error.code(), ExitCode::crash) << error.what();
  EXPECT_EQ(names_in(disk.path()), std::vector<std::string>{"rest"});
}

}  // namespace
}  // namespace shiftron::cli
