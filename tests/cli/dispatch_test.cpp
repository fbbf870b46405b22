// Commands are found by noun and verb; help and suggestions at every level.
#include "cli/dispatch.h"

#include <gmock/gmock.h>

#include "cli/version.h"
#include "core/check.h"

namespace shiftron::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

// Stand-ins tell by their exit codes which one ran and how many options it got.
std::vector<Command> command_table() {
  const std::vector<CommandOption> options = {text_option("output", "DIR", "where"), json_flag()};
  const auto code = [](const CommandLine& line) { return static_cast<int>(line.values.size()); };
  return {
      {"train",
       "",
       "trains a model",
       "--config FILE",
       {},
       true,
       [](const CommandLine& line) { return 100 + static_cast<int>(line.values.size() + 10 * line.faults.size()); }},
      {"data", "build", "writes shards", "--output DIR", options, false, code},
      {"data", "verify", "checks shards", "", options, false, [](const CommandLine&) { return 120; }},
      {"names", "", "takes a name", "", {directories("a name")}, false, code},
      {"checkpoint", "list", "lists steps", "", {}, false, [](const CommandLine&) -> int { throw_crash("no disk"); }},
  };
}

std::string message_of(const Words& words) {
  try {
    dispatch(command_table(), words);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return "no error";
}

std::pair<int, std::string> output_of(const Words& words) {
  ::testing::internal::CaptureStdout();
  const int code = dispatch(command_table(), words);
  return {code, ::testing::internal::GetCapturedStdout()};
}

TEST(Dispatch, RunsNounAndVerb) {
  EXPECT_EQ(dispatch(command_table(), {"train"}), 100);
  EXPECT_EQ(dispatch(command_table(), {"train", "--model.hidden", "64", "--config=a"}), 102);
  EXPECT_EQ(dispatch(command_table(), {"data", "build", "--output", "x"}), 1);
  EXPECT_THROW(dispatch(command_table(), {"checkpoint", "list"}), Error);
}

TEST(Dispatch, HelpAtEveryLevel) {
  for (const Words& words : {Words{"--help"}, Words{"-h"}, Words{"help"}, Words{"help", "--help"}, Words{"help", "-h"},
                             Words{"help", "help"}}) {
    const auto [code, text] = output_of(words);
    EXPECT_EQ(code, 0);
    EXPECT_THAT(text, HasSubstr("data build       writes shards"));
    EXPECT_THAT(text, HasSubstr("train            trains a model"));
  }
  const auto [code, text] = output_of({"data", "--help"});
  EXPECT_EQ(code, 0);
  EXPECT_THAT(text, HasSubstr("data verify"));
  EXPECT_THAT(text, Not(HasSubstr("trains a model")));
  for (const Words& words :
       {Words{"data", "build", "--help"}, Words{"data", "build", "-h"}, Words{"data", "build", "--nosuch", "--help"}}) {
    const auto [ends, lines] = output_of(words);
    EXPECT_EQ(ends, 0);
    EXPECT_THAT(lines, HasSubstr("Usage: shiftron data build --output DIR"));
    EXPECT_THAT(lines, HasSubstr("--json"));
  }
  EXPECT_THAT(output_of({"train", "--help"}).second,
              AllOf(HasSubstr("shiftron train --help all"), Not(HasSubstr("--model.hidden N"))));
  for (const Words& words : {Words{"train", "--help", "all"}, Words{"help", "train", "all"}, Words{"--help", "all"}}) {
    EXPECT_THAT(output_of(words).second, HasSubstr("--model.hidden N"));
  }
  EXPECT_THAT(output_of({"--help", "json"}).second, HasSubstr(R"("name": "data build")"));
  EXPECT_EQ(message_of({"--version", "x"}), "unexpected word 'x' after --version");
  EXPECT_EQ(message_of({"data", "--help", "x"}),
            "unexpected word 'x' after --help; shiftron data x --help describes one command");
  EXPECT_EQ(message_of({"--help", "train"}),
            "unexpected word 'train' after --help; shiftron train --help describes one command");
}

TEST(Dispatch, HelpAsAWord) {
  for (const Words& command : {Words{"train"}, Words{"data"}, Words{"data", "build"}}) {
    Words asked = command;
    asked.emplace_back("--help");
    Words helped = command;
    helped.insert(helped.begin(), "help");
    EXPECT_EQ(output_of(helped), output_of(asked));
    helped.emplace_back("--help");
    EXPECT_EQ(output_of(helped), output_of(asked));
  }
  EXPECT_THAT(message_of({"help", "trian"}), HasSubstr("unknown command 'trian'; did you mean train?"));
  EXPECT_THAT(message_of({"help", "data", "biuld"}), HasSubstr("unknown command 'data biuld'; did you mean build?"));
  EXPECT_EQ(message_of({"help", "data", "build", "x"}), "unexpected word 'x' after build");
  EXPECT_THAT(message_of({"train", "help"}), HasSubstr("unexpected word 'help'; shiftron train --help"));
  EXPECT_THAT(message_of({"data", "build", "help"}), HasSubstr("unexpected word 'help'; shiftron data build --help"));
  EXPECT_THAT(message_of({"data", "help"}),
              HasSubstr("unknown command 'data help' (data has: build, verify; shiftron data --help"));
  EXPECT_EQ(dispatch(command_table(), {"names", "help"}), 1) << "a word that may stand alone";
}

TEST(Dispatch, FaultsOfTheLineAreRefusedBeforeTheCommandRuns) {
  EXPECT_THAT(message_of({"data", "verify", "--jsno", "stray", "word"}),
              HasSubstr("2 faults in the command line:\n  unknown option --jsno; did you mean --json?\n"
                        "  unexpected word 'word'\nusage: shiftron data verify"));
  EXPECT_EQ(dispatch(command_table(), {"train", "--nosuch"}), 110) << "they wait for those of the configuration";
}

TEST(Dispatch, NothingGivenIsAFaultWithHelp) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(dispatch(command_table(), {}), 76);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("Usage: shiftron COMMAND"));
}

TEST(Dispatch, SuggestsTheNearestCommand) {
  EXPECT_EQ(message_of({"trian"}), "unknown command 'trian'; did you mean train?; shiftron --help lists all commands");
  EXPECT_EQ(message_of({"zzzzzzzz"}), "unknown command 'zzzzzzzz'; shiftron --help lists all commands");
  EXPECT_EQ(message_of({"data", "biuld"}),
            "unknown command 'data biuld'; did you mean build? (data has: build, verify)");
  EXPECT_EQ(message_of({"data"}), "data needs one of: build, verify");
}

TEST(Dispatch, Version) {
  const auto [code, text] = output_of({"--version"});
  EXPECT_EQ(code, 0);
  EXPECT_EQ(text, version_text());
  EXPECT_THAT(text, ::testing::MatchesRegex("shiftron .+\ncommit .+\nbackends .+\n"));
}

}  // namespace
}  // namespace shiftron::cli
