// `shiftron checkpoint`: answers and exit codes.
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/fixture.h"
#include "cli/dispatch.h"

namespace shiftron::cli {
namespace {

using namespace shiftron::testing;
using nlohmann::json;
using ::testing::HasSubstr;

struct Answer {
  int code = 0;
  std::string text;
};

Answer run(const std::string& verb, std::vector<std::string> words) {
  words.insert(words.begin(), {"checkpoint", verb});
  std::ostringstream text;
  struct Redirected {
    std::streambuf* before;
    ~Redirected() { std::cout.rdbuf(before); }
  } const redirected{std::cout.rdbuf(text.rdbuf())};
  const int code = dispatch(checkpoint_commands(), words);
  return {code, text.str()};
}

const FakeModel kModel{.layers = 2, .kv_heads = 2, .vocab = 13};

class CheckpointCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(save_state(run_ + "/checkpoints", kModel, {.tp = 2}, 10, 1).saved);
    ASSERT_TRUE(save_state(run_ + "/checkpoints", kModel, {.tp = 2}, 20, 2).saved);
    ASSERT_TRUE(save_state(run_ + "/other", kModel, {.pp = 2}, 20, 2).saved);
  }
  TemporaryDirectory directory_;
  const std::string run_ = directory_.path() + "/run";
  const std::string ten_ = run_ + "/checkpoints/step-00000010";
  const std::string twenty_ = run_ + "/checkpoints/step-00000020";
  const std::string other_ = run_ + "/other/step-00000020";
};

TEST_F(CheckpointCommands, ListTellsValidFromBroken) {
  fs::remove(ten_ + "/rank-00001.h5");
  const Answer answer = run("list", {run_, "--json"});
  EXPECT_EQ(answer.code, 0);
  const json steps = json::parse(answer.text);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0]["step"], 10);
  EXPECT_EQ(steps[0]["valid"], false);
  EXPECT_THAT(steps[0]["fault"].get<std::string>(), HasSubstr("rank-00001.h5"));
  EXPECT_EQ(steps[1]["valid"], true);
  EXPECT_THAT(run("list", {run_ + "/checkpoints"}).text, HasSubstr("step-00000020: "));
  EXPECT_THAT(run("list", {directory_.path()}).text, HasSubstr("contains no steps"));
}

TEST_F(CheckpointCommands, ListShowsStepsNextToOneThatCannotBeRead) {
  fs::remove_all(ten_);
  fs::create_directory_symlink(directory_.path() + "/archive", ten_);
  std::ostringstream out;
  std::streambuf* const stdout_before = std::cout.rdbuf(out.rdbuf());
  const Error error = error_of([&] { dispatch(checkpoint_commands(), {"checkpoint", "list", run_, "--json"}); });
  std::cout.rdbuf(stdout_before);
  EXPECT_EQ(error.code(), ExitCode::crash);
  EXPECT_THAT(error.what(), HasSubstr(ten_ + " is a symbolic link to"));
  const json steps = json::parse(out.str());
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0]["valid"], json());
  EXPECT_EQ(steps[1]["valid"], true);
}

TEST_F(CheckpointCommands, InspectShowsTensorsAndDigests) {
  const json step = json::parse(run("inspect", {twenty_, "--json", "--digest"}).text);
  const json other = json::parse(run("inspect", {other_, "--json", "--digest"}).text);
  EXPECT_EQ(step["step"], 20);
  EXPECT_EQ(step["state"]["consumed"], 160);
  EXPECT_EQ(step["writer_layout"]["tp"], 2);
  ASSERT_EQ(step["tensors"].size(), other["tensors"].size());
  for (size_t i = 0; i < step["tensors"].size(); ++i) {
    EXPECT_EQ(step["tensors"][i]["xxh3_128"], other["tensors"][i]["xxh3_128"]);
  }
  EXPECT_THAT(run("inspect", {twenty_}).text, HasSubstr("parameters/final_norm.weight [24] float32 in 1 box"));
}

TEST_F(CheckpointCommands, VerifyNamesFileAndTensor) {
  EXPECT_EQ(run("verify", {twenty_}).code, 0);
  const std::string file = twenty_ + "/rank-00001.h5";
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<int64_t>(fs::file_size(file)) - 4);
  stream.put('\x7f');
  stream.close();
  const Answer answer = run("verify", {twenty_});
  EXPECT_EQ(answer.code, 74);
  EXPECT_THAT(answer.text, HasSubstr("rank-00001.h5: second_moment/"));
  const Answer as_json = run("verify", {twenty_, "--json"});
  EXPECT_EQ(as_json.code, 74);
  EXPECT_EQ(json::parse(as_json.text)["valid"], false);
}

TEST_F(CheckpointCommands, DiffComparesAcrossLayouts) {
  EXPECT_EQ(run("diff", {twenty_, other_}).code, 0);
  const Answer unequal = run("diff", {ten_, other_, "--json"});
  EXPECT_EQ(unequal.code, 1);
  EXPECT_EQ(json::parse(unequal.text)["equal"], false);
  EXPECT_THAT(run("diff", {ten_, other_}).text, HasSubstr("parameters/final_norm.weight: 24 of 24 elements differ"));
}

TEST_F(CheckpointCommands, WrongWordsAreBadInput) {
  EXPECT_EQ(error_of([&] { run("diff", {ten_}); }).code(), ExitCode::bad_input);
  EXPECT_EQ(error_of([&] { run("verify", {run_ + "/none"}); }).code(), ExitCode::bad_input);
  for (const char* verb : {"inspect", "verify"}) {
    for (const std::string& place : {run_, run_ + "/checkpoints"}) {
      const Error error = error_of([&] { run(verb, {place}); });
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_THAT(error.what(), HasSubstr("its newest step is " + twenty_));
    }
  }
  EXPECT_THAT(error_of([&] { run("diff", {twenty_, run_}); }).what(), HasSubstr("its newest step is " + twenty_));
  EXPECT_THAT(run("verify", {"--help"}).text, HasSubstr("Usage: shiftron checkpoint verify STEP_DIR"));
}

TEST_F(CheckpointCommands, AStepWithoutItsManifestIsDamaged) {
  fs::remove(twenty_ + "/manifest.json");
  EXPECT_EQ(run("verify", {twenty_}).code, 74);
  EXPECT_EQ(error_of([&] { run("inspect", {twenty_}); }).code(), ExitCode::no_checkpoint);
}

TEST_F(CheckpointCommands, ADirectoryThatIsNoUtf8IsShown) {
  const std::string odd = directory_.path() + "/caf\xe9";
  fs::copy(twenty_, odd, fs::copy_options::recursive);
  EXPECT_EQ(run("verify", {odd, "--json"}).code, 0);
  EXPECT_EQ(json::parse(run("inspect", {odd, "--json"}).text)["step"], 20);
}

}  // namespace
}  // namespace shiftron::cli
