// Commands are found by noun and verb; help and suggestions at every level.
#include "cli/dispatch.h"

#include <gmock/gmock.h>

#include "cli/version.h"
#include "core/check.h"

namespace shiftron::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

// Stand-ins tell by their exit codes which one ran and how many words it got.
std::vector<Command> table() {
  return {
      {"train", "", "trains a model", [](const Words& words) { return 100 + static_cast<int>(words.size()); }},
      {"data", "build", "writes shards", [](const Words& words) { return 110 + static_cast<int>(words.size()); }},
      {"data", "verify", "checks shards", [](const Words& words) { return words.at(0) == "--help" ? 121 : 120; }},
      {"checkpoint", "list", "lists steps", [](const Words&) -> int { throw_crash("no disk"); }},
  };
}

std::string message_of(const Words& words) {
  try {
    dispatch(table(), words);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return "no error";
}

std::pair<int, std::string> output_of(const Words& words) {
  testing::internal::CaptureStdout();
  const int code = dispatch(table(), words);
  return {code, testing::internal::GetCapturedStdout()};
}

TEST(Dispatch, RunsNounAndVerb) {
  EXPECT_EQ(dispatch(table(), {"train"}), 100);
  EXPECT_EQ(dispatch(table(), {"train", "--model.hidden", "64"}), 102);
  EXPECT_EQ(dispatch(table(), {"data", "build", "--output", "x"}), 112);
  EXPECT_THROW(dispatch(table(), {"checkpoint", "list"}), Error);
}

TEST(Dispatch, HelpAtEveryLevel) {
  for (const Words& words : {Words{"--help"}, Words{"-h"}, Words{"help"}}) {
    const auto [code, text] = output_of(words);
    EXPECT_EQ(code, 0);
    EXPECT_THAT(text, HasSubstr("data build       writes shards"));
    EXPECT_THAT(text, HasSubstr("train            trains a model"));
  }
  const auto [code, text] = output_of({"data", "--help"});
  EXPECT_EQ(code, 0);
  EXPECT_THAT(text, HasSubstr("data verify"));
  EXPECT_THAT(text, Not(HasSubstr("trains a model")));
  EXPECT_EQ(dispatch(table(), {"data", "verify", "--help"}), 121);
  EXPECT_EQ(dispatch(table(), {"data", "verify", "-h"}), 121);
  EXPECT_EQ(dispatch(table(), {"train", "--help"}), 101);
}

TEST(Dispatch, NothingGivenIsAFaultWithHelp) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(dispatch(table(), {}), 76);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("Usage: shiftron COMMAND"));
}

TEST(Dispatch, SuggestsTheNearestCommand) {
  EXPECT_EQ(message_of({"trian"}), "unknown command 'trian', nearest is train; shiftron --help lists all");
  EXPECT_EQ(message_of({"zzzzzzzz"}), "unknown command 'zzzzzzzz'; shiftron --help lists all");
  EXPECT_EQ(message_of({"data", "biuld"}), "unknown command 'data biuld', nearest is build; data has: build, verify");
  EXPECT_EQ(message_of({"data"}), "data needs one of: build, verify");
}

TEST(Dispatch, Version) {
  const auto [code, text] = output_of({"--version"});
  EXPECT_EQ(code, 0);
  EXPECT_EQ(text, version_text());
  EXPECT_THAT(text, testing::MatchesRegex("shiftron .+\ncommit .+\nbackends .+\n"));
}

}  // namespace
}  // namespace shiftron::cli
