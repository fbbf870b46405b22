// Names of other trainers lead to keys and options that exist here, on command lines and in files.
#include "config/familiar_names.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/command.h"
#include "cli/config_reader.h"
#include "config/options.h"

namespace shiftron::cli {
namespace {

using ::testing::ElementsAre;

// Every configuration key, with what its values may be.
std::map<std::string, std::string> values_of_keys() {
  std::map<std::string, std::string> keys;
  for (const Option& key : option_table()) keys[key.key] = key.values;
  return keys;
}

std::vector<std::string> names_of(const std::vector<CommandOption>& options) {
  std::vector<std::string> names;
  for (const CommandOption& option : options) names.push_back(option.name);
  return names;
}

TEST(FamiliarNames, EveryTargetExists) {
  const std::map<std::string, std::string> keys = values_of_keys();
  std::set<std::string> targets;
  for (const auto& [key, values] : keys) targets.insert(key);
  for (const Command& command : all_commands()) {
    for (const std::string& name : names_of(command.options)) targets.insert(name);
  }
  targets.insert("config");
  std::set<std::pair<std::string, std::string>> seen;
  for (const FamiliarName& row : familiar_names()) {
    EXPECT_TRUE(targets.contains(row.target)) << row.name << " leads to " << row.target << ", which does not exist";
    EXPECT_EQ(std::string(row.name).find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_."), std::string::npos)
        << row.name;
    EXPECT_FALSE(keys.contains(row.name)) << row.name << " is a key";
    EXPECT_TRUE(seen.emplace(row.name, row.target).second) << row.name << " is there twice";
    if (*row.value != '\0') {
      RunConfig config;
      const std::vector<Option> table = option_table();
      EXPECT_EQ(std::ranges::find(table, row.target, &Option::key)->read(config, row.value), "") << row.name;
    }
  }
}

// Each row, as an option of each command that has its target: the first row of the name that the command has counts.
TEST(FamiliarNames, EveryRowIsSuggestedByTheCommandsThatHaveItsTarget) {
  std::set<std::pair<std::string, std::string>> suggested;
  for (const Command& command : all_commands()) {
    const auto options = command.configured ? with_configuration(command.options) : command.options;
    const std::vector<std::string> known = names_of(options);
    for (const FamiliarName& row : familiar_names()) {
      if (std::ranges::count(known, row.name) > 0) continue;
      const std::string word = "--" + std::string(row.name);
      for (const std::string& fault : parse_command_line({word}, options).faults) {
        const std::string whole = std::string("unknown option ") + word + "; did you mean --" + row.target;
        if (fault.starts_with(whole + "?") || fault.starts_with(whole + " ")) suggested.emplace(row.name, row.target);
      }
    }
  }
  for (const FamiliarName& row : familiar_names()) {
    EXPECT_TRUE(suggested.contains({row.name, row.target})) << row.name << " never leads to " << row.target;
  }
}

TEST(FamiliarNames, AsPeopleWriteThem) {
  const auto suggestion_of = [](const std::string& word) {
    for (const Command& command : all_commands()) {
      if (command.noun != "train") continue;
      const std::string fault = parse_command_line({word}, with_configuration(command.options)).faults.front();
      return fault.substr(std::min(fault.find("did"), fault.size()));
    }
    return std::string("no train");
  };
  EXPECT_EQ(suggestion_of("--optimizer.lr"), "did you mean --optimizer.learning_rate?");
  EXPECT_EQ(suggestion_of("--lr=3e-4"), "did you mean --optimizer.learning_rate?");
  EXPECT_EQ(suggestion_of("--learning-rate"), "did you mean --optimizer.learning_rate?");
  EXPECT_EQ(suggestion_of("--learning_rate"), "did you mean --optimizer.learning_rate?");
  EXPECT_EQ(suggestion_of("--Micro-Batch-Size"), "did you mean --train.micro_batch?");
  EXPECT_EQ(suggestion_of("--training.seq_len"), "did you mean --train.sequence_length?");
  EXPECT_EQ(suggestion_of("--parallelism.tensor_parallel_degree"), "did you mean --parallel.tp?");
  EXPECT_EQ(suggestion_of("--parallelism.tp"), "did you mean --parallel.tp?");
  EXPECT_EQ(suggestion_of("--seed"), "did you mean --train.seed?");
  EXPECT_EQ(suggestion_of("--warmup"), "did you mean --optimizer.warmup?");
  EXPECT_EQ(suggestion_of("--steps"), "did you mean --train.steps?");
  EXPECT_EQ(suggestion_of("--bf16"), "did you mean --train.precision bf16?");
  EXPECT_EQ(suggestion_of("--load"), "did you mean --checkpoint.resume?");
  EXPECT_EQ(suggestion_of("-lr"), "did you mean --optimizer.learning_rate?");
  EXPECT_EQ(suggestion_of("--" + std::string(1 << 20, 'x')), "") << "at once";
}

TEST(FamiliarNames, InFiles) {
  const RunConfig config = read_config_text("[train]\nlr = 1\nbf16 = true\n[model]\nnum_hidden_layers = 2\n", "a.conf");
  EXPECT_THAT(config.reading_faults,
              ElementsAre("unknown key train.lr; did you mean optimizer.learning_rate? (a.conf:2)",
                          "unknown key train.bf16; did you mean train.precision = bf16? (a.conf:3)",
                          "unknown key model.num_hidden_layers; did you mean model.layers? (a.conf:5)"));
}

}  // namespace
}  // namespace shiftron::cli
