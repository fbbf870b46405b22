// Help of the real command table: its width, its examples, the keys it shows, and the same as JSON.
#include "cli/help.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/config_reader.h"
#include "config/options.h"

namespace shiftron::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Command named(const std::string& words) {
  for (const Command& command : all_commands()) {
    if (words_of(command) == words) return command;
  }
  ADD_FAILURE() << words << " is no command";
  return {};
}

// Lines of more than 100 characters, and lines that end in a blank.
std::vector<std::string> bad_lines(const std::string& text) {
  std::vector<std::string> bad;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto size = std::ranges::count_if(line, [](char byte) { return (byte & 0xC0) != 0x80; });
    if (size > 100 || line.ends_with(' ')) bad.push_back(line);
  }
  return bad;
}

// The words of a line, without quotes: 'a b' is one word.
std::vector<std::string> words_in(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

TEST(Help, NoLineIsWiderThan100Columns) {
  const std::vector<Command> commands = all_commands();
  EXPECT_THAT(bad_lines(commands_help(commands)), IsEmpty());
  EXPECT_THAT(bad_lines(keys_help()), IsEmpty());
  for (const Command& command : commands) {
    EXPECT_THAT(bad_lines(command_help(command)), IsEmpty()) << words_of(command);
    EXPECT_THAT(bad_lines(command_help(command, true)), IsEmpty()) << words_of(command);
    EXPECT_THAT(bad_lines(commands_help(commands, command.noun)), IsEmpty()) << command.noun;
  }
}

TEST(Help, EveryCommandHasAnExampleWithoutFaults) {
  for (const Command& command : all_commands()) {
    const size_t at = command.example.find(words_of(command) + " ");
    ASSERT_NE(at, std::string::npos) << words_of(command) << ": " << command.example;
    EXPECT_THAT(command.example.substr(0, at), ::testing::MatchesRegex("shiftron |launch/local [0-9]+ "));
    const std::vector<std::string> words = words_in(command.example.substr(at + words_of(command).size() + 1));
    const auto options = command.configured ? with_configuration(command.options) : command.options;
    EXPECT_THAT(parse_command_line(words, options).faults, IsEmpty()) << command.example;
    EXPECT_THAT(command_help(command), HasSubstr("\nExample:\n  " + command.example + "\n"));
  }
}

TEST(Help, KeysAreListedOnlyOnRequest) {
  const Command train = named("train");
  ASSERT_EQ(train.main_keys.size(), 10U);
  const std::string plain = command_help(train), all = command_help(train, true);
  const std::string count = std::to_string(option_table().size());
  EXPECT_THAT(plain, HasSubstr("\nAll " + count + " keys: shiftron train --help all\n"));
  for (const std::string& key : train.main_keys) EXPECT_THAT(plain, HasSubstr("\n  --" + key + " "));
  EXPECT_THAT(plain, Not(HasSubstr("--model.rope_base")));
  for (const Option& key : option_table()) EXPECT_THAT(all, HasSubstr("\n  --" + key.key + " " + key.values));
  EXPECT_THAT(command_help(named("generate")),
              AllOf(HasSubstr("shiftron generate --help all"), Not(HasSubstr("--model."))));
  EXPECT_THAT(command_help(named("status")), Not(HasSubstr("--help all")));
}

TEST(Help, KeysHaveTheirDefaults) {
  const std::string help = keys_help();
  EXPECT_THAT(help, HasSubstr("query heads (required)"));
  EXPECT_THAT(help, HasSubstr("maximum gradient norm; larger gradients are scaled down; 0 = off [1]"));
  EXPECT_THAT(help, HasSubstr("the run's directory (required)"));
  EXPECT_THAT(help, HasSubstr("(in this version 1) [1]"));
  EXPECT_THAT(keys_help(false), HasSubstr("maximum gradient norm; larger gradients are scaled down; 0 = off\n"));
}

// What a checkpoint states need not be given.
TEST(Help, KeysOfACheckpointAreNotRequired) {
  for (const char* words : {"evaluate", "generate"}) {
    const std::string help = command_help(named(words), true);
    const std::string keys = help.substr(help.find("\nConfiguration keys"));
    EXPECT_THAT(keys, HasSubstr("the checkpoint's where they are not given"));
    EXPECT_THAT(keys, Not(HasSubstr("(required)")));
  }
  EXPECT_THAT(command_help(named("train"), true), HasSubstr("(required)"));
}

TEST(Help, JsonHoldsEveryCommandOptionAndKey) {
  const auto json = help_json(all_commands());
  ASSERT_EQ(json["commands"].size(), all_commands().size());
  ASSERT_EQ(json["keys"].size(), option_table().size());
  std::map<std::string, nlohmann::json> commands, options, keys;
  for (const auto& command : json["commands"]) commands[command["name"].get<std::string>()] = command;
  for (const auto& option : commands.at("generate")["options"]) options[option["name"].get<std::string>()] = option;
  for (const auto& key : json["keys"]) keys[key["name"].get<std::string>()] = key;
  EXPECT_EQ(commands.at("data build")["summary"], named("data build").summary);
  EXPECT_EQ(commands.at("data build")["takes_keys"], false);
  EXPECT_EQ(commands.at("train")["takes_keys"], true);
  EXPECT_EQ(options.at("--checkpoint")["argument"], "STEP_DIR");
  EXPECT_EQ(options.at("--checkpoint")["required"], true);
  EXPECT_EQ(options.at("--tokens")["type"], "integer");
  EXPECT_EQ(options.at("--tokens")["default"], "64");
  EXPECT_EQ(options.count("--help") + options.count("--config"), 2U);
  EXPECT_EQ(keys.at("model.hidden")["required"], true);
  EXPECT_EQ(keys.at("optimizer.clip")["type"], "number");
  EXPECT_EQ(keys.at("optimizer.clip")["default"], "1");
  EXPECT_EQ(keys.at("model.tie_embeddings")["type"], "boolean");
  EXPECT_EQ(keys.at("shift.form")["choices"].get<std::vector<std::string>>(),
            (std::vector<std::string>{"free", "gate", "clamp", "project"}));
  EXPECT_EQ(keys.at("parallel.recompute")["choices"].get<std::vector<std::string>>(),
            (std::vector<std::string>{"none", "selective", "full"}));
  EXPECT_EQ(keys.at("checkpoint.resume")["choices"].get<std::vector<std::string>>(),
            (std::vector<std::string>{"auto", "never"}));
  EXPECT_EQ(keys.at("data.train")["repeatable"], true);
}

}  // namespace
}  // namespace shiftron::cli
