// Words of a command line: what is refused, and that all errors are reported at once.
#include "cli/command_line.h"

#include <gmock/gmock.h>

namespace shiftron::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

std::vector<CommandOption> option_table() {
  CommandOption input = required(text_option("input", "FILE…", "files"));
  input.values = kUnlimited;
  input.takes_rest = true;
  CommandOption kind = text_option("kind", "KIND", "which", "bpe");
  kind.choices = {"bpe", "unigram"};
  return {input,
          kind,
          text_option("prompt", "TEXT", "text"),
          integer_option("tokens", "how many", between(1, 1000), "64"),
          real_option("temperature", "how warm", at_least(0), "0"),
          json_flag()};
}

Words faults(const Words& words) {
  Words all = {"--input", "a"};
  all.insert(all.end(), words.begin(), words.end());
  return parse_command_line(all, option_table()).faults;
}

TEST(CommandLine, ReadsEveryKind) {
  const CommandLine line = parse_command_line(
      {"--input", "a", "b", "--tokens=7", "--temperature", "0.5", "--json", "--input=c", "--prompt=--tokens"},
      option_table());
  EXPECT_THAT(line.faults, IsEmpty());
  EXPECT_THAT(line.texts("input"), ElementsAre("a", "b", "c"));
  EXPECT_EQ(line.integer("tokens"), 7);
  EXPECT_EQ(line.real("temperature"), 0.5);
  EXPECT_EQ(line.text("prompt"), "--tokens");
  EXPECT_TRUE(line.has("json"));
  EXPECT_FALSE(line.help);
}

TEST(CommandLine, WhatIsNotGivenHasItsDefault) {
  const CommandLine line = parse_command_line({"--input", "a"}, option_table());
  EXPECT_EQ(line.integer("tokens"), 64);
  EXPECT_EQ(line.text("kind"), "bpe");
  EXPECT_EQ(line.text("prompt"), "");
  EXPECT_FALSE(line.has("tokens"));
}

TEST(CommandLine, UnknownOptionsNameTheNearest) {
  EXPECT_THAT(faults({"--temprature", "0.8"}), ElementsAre("unknown option --temprature; did you mean --temperature?"));
  EXPECT_THAT(faults({"--temprature=0.8"}), ElementsAre("unknown option --temprature; did you mean --temperature?"));
  EXPECT_THAT(faults({"--json", "-tokens", "3"}),
              ElementsAre("unexpected word '-tokens'; did you mean --tokens?", "unexpected word '3'"));
}

TEST(CommandLine, AnOptionIsNoValue) {
  EXPECT_THAT(faults({"--prompt", "--tokens", "2"}),
              ElementsAre("--prompt needs a value (write a value that begins with dashes as --prompt=--…)"));
  EXPECT_THAT(faults({"--prompt", "-h"}), ::testing::SizeIs(1));
  EXPECT_THAT(faults({"--prompt"}), ElementsAre("--prompt needs a value"));
  EXPECT_THAT(faults({"--prompt", "-1"}), IsEmpty());
  EXPECT_THAT(faults({"--prompt", ""}), IsEmpty());
  EXPECT_THAT(faults({"--json=yes"}), ElementsAre("--json takes no value"));
}

TEST(CommandLine, NumbersAreReadWholeAndHeldToTheirLimits) {
  EXPECT_THAT(faults({"--tokens", "4294967297"}), ElementsAre("--tokens '4294967297' must be <= 1000"));
  EXPECT_THAT(faults({"--tokens", "-1"}), ElementsAre("--tokens '-1' must be >= 1"));
  EXPECT_THAT(
      faults({"--tokens", "99999999999999999999"}),
      ElementsAre("--tokens '99999999999999999999' is too large or too close to 0 for a floating-point number"));
  for (const char* wrong : {"", "x", "2x", "1.5", " 3", "nan", "0x10"}) {
    EXPECT_THAT(faults({"--tokens", wrong}),
                ElementsAre("--tokens '" + std::string(wrong) + "' is not a whole number"));
  }
  for (const char* wrong : {"nan", "inf", "1e400", "-0.5", ""}) {
    EXPECT_THAT(faults({"--temperature", wrong}), ::testing::SizeIs(1)) << wrong;
  }
}

TEST(CommandLine, ChoicesRepeatsAndWhatIsMissing) {
  EXPECT_THAT(faults({"--kind", "word"}), ElementsAre("--kind 'word' is not one of bpe, unigram"));
  EXPECT_THAT(faults({"--tokens", "3", "--tokens=4"}), ElementsAre("--tokens takes 1 value, 2 are given"));
  EXPECT_THAT(parse_command_line({}, option_table()).faults, ElementsAre("--input FILE… is missing"));
  EXPECT_THAT(parse_command_line({"--input"}, option_table()).faults, ElementsAre("--input needs a value"));
  EXPECT_THAT(parse_command_line({"--input="}, option_table()).faults, ElementsAre("--input '' is empty"));
}

TEST(CommandLine, DirectoriesMayStandAlone) {
  const std::vector<CommandOption> two = {directories("steps", 2), json_flag()};
  EXPECT_THAT(parse_command_line({"a", "--json", "b"}, two).texts("directory"), ElementsAre("a", "b"));
  EXPECT_THAT(parse_command_line({"a", "--directory", "b"}, two).faults, IsEmpty());
  EXPECT_THAT(parse_command_line({"a"}, two).faults, ElementsAre("--directory takes 2 values, 1 is given"));
  EXPECT_THAT(parse_command_line({"a", "b", "c"}, two).faults, ElementsAre("--directory takes 2 values, 3 are given"));
  EXPECT_THAT(parse_command_line({}, two).faults,
              ElementsAre("--directory DIR is missing; the option's name can be omitted"));
}

TEST(CommandLine, AllFaultsAreToldTogetherAndReadably) {
  const Words found = faults({"--kind=\xff", "stray\x01", "--nosuch", "--tokens=0"});
  EXPECT_THAT(found, ElementsAre("unexpected word 'stray\\x01'", "unknown option --nosuch",
                                 "--kind '\\xFF' is not one of bpe, unigram", "--tokens '0' must be >= 1"));
}

}  // namespace
}  // namespace shiftron::cli
