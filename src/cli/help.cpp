// Lays out help in two columns.
#include "cli/help.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/config_reader.h"
#include "config/options.h"
#include "core/wrapped_text.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::pair<std::string, std::string>>;  // left and right column

constexpr size_t kLargestLeft = 30;  // longer names stand on a line of their own

std::string two_columns(const Rows& rows) {
  size_t left = 0;
  for (const auto& [name, help] : rows) {
    const size_t size = columns(name) + 4;
    if (size <= kLargestLeft) left = std::max(left, size);
  }
  std::string text;
  for (const auto& [name, help] : rows) {
    const size_t size = columns(name) + 4;
    text += "  " + name + (size <= left ? std::string(left - size + 2, ' ') : "\n" + std::string(left, ' '));
    text += wrapped(help, left);
  }
  return text;
}

std::string note(bool required, const std::string& otherwise) {
  return required ? " (required)" : otherwise.empty() ? "" : " [" + otherwise + "]";
}

// All options of a command that are not configuration keys.
std::vector<CommandOption> own_options(const Command& command) {
  std::vector<CommandOption> options = command.options;
  if (command.configured) {
    options = with_configuration(options);
    options.resize(command.options.size() + 1);
  }
  options.push_back(command.configured
                        ? text_option("help", "[all]", "print this help; all = with every configuration key")
                        : flag("help", "print this help"));
  return options;
}

// Whether keys that are not given come from a checkpoint, so that none is required and defaults do not apply.
bool is_of_checkpoint(const Command& command) {
  return std::ranges::find(command.options, "checkpoint", &CommandOption::name) != command.options.end();
}

std::string default_of(const Option& key) {
  const std::vector<std::string> defaults = key.write(RunConfig{});
  return key.required || defaults.empty() ? "" : defaults.front();
}

std::pair<std::string, std::string> row_of(const Option& key, bool defaults) {
  return {"--" + key.key + " " + key.values, full_help(key) + (defaults ? note(key.required, default_of(key)) : "")};
}

std::string main_keys_help(const Command& command) {
  const std::vector<Option> keys = option_table();
  const std::string all = std::to_string(keys.size()) + " keys: shiftron " + words_of(command) + " --help all\n";
  if (command.main_keys.empty()) return "\nConfiguration keys are options too, --KEY VALUE. All " + all;
  Rows rows;
  for (const std::string& name : command.main_keys)
    rows.push_back(row_of(*std::ranges::find(keys, name, &Option::key), !is_of_checkpoint(command)));
  return "\nThe configuration keys that are set most often:\n" + two_columns(rows) + "All " + all;
}

// "integer", "number", "boolean", "choice" or "text", and the words to choose from.
std::pair<std::string, std::vector<std::string>> type_of(const std::string& values) {
  if (values == "N") return {"integer", {}};
  if (values == "X") return {"number", {}};
  if (values == "true|false") return {"boolean", {"true", "false"}};
  if (values.find('|') == values.npos) return {"text", {}};
  std::vector<std::string> choices;
  for (size_t begin = 0; begin <= values.size();) {
    const size_t end = std::min(values.find('|', begin), values.size());
    const std::string word = values.substr(begin, end - begin);
    choices.push_back(word.substr(0, word.find('[')));  // of "full[,...]"
    begin = end + 1;
  }
  std::erase_if(choices, [](const std::string& word) { return word == "STEP"; });  // stands for a number
  return {"choice", choices};
}

Json option_json(const CommandOption& option) {
  auto [type, choices] = type_of(option.value_name);
  if (!option.choices.empty()) {
    type = "choice";
    choices = option.choices;
  }
  if (option.value_name.empty()) type = "flag";
  return {{"name", "--" + option.name},
          {"argument", option.value_name},
          {"type", type},
          {"choices", choices},
          {"default", option.otherwise},
          {"required", option.required},
          {"repeatable", option.values > 1 || option.takes_rest},
          {"may_stand_alone", option.bare},
          {"help", option.help}};
}

Json key_json(const Option& key) {
  const auto [type, choices] = type_of(key.values);
  return {{"name", key.key},           {"argument", key.values},     {"type", type},
          {"choices", choices},        {"default", default_of(key)}, {"required", key.required},
          {"repeatable", key.is_list}, {"help", full_help(key)}};
}

}  // namespace

std::string words_of(const Command& command) {
  return command.noun + (command.verb.empty() ? "" : " " + command.verb);
}

std::string usage_of(const Command& command) {
  return "shiftron " + words_of(command) + (command.usage.empty() ? "" : " " + command.usage);
}

std::string commands_help(const std::vector<Command>& commands, const std::string& noun) {
  const std::string words = noun.empty() ? "" : noun + " ";
  std::string text = noun.empty() ? "Shiftron trains language models with KV shifting attention.\n\n" : "";
  text += "Usage: shiftron " + words + "COMMAND [options]\n\nCommands:\n";
  Rows rows;
  for (const Command& command : commands) {
    if (noun.empty() || (command.noun == noun && !command.verb.empty()))
      rows.emplace_back(words_of(command), command.summary);
  }
  text += two_columns(rows) + "\nshiftron " + words + "COMMAND --help: options and an example\n";
  if (!noun.empty()) return text;
  return text +
         "shiftron --help all:     also every configuration key\n"
         "shiftron --help json:    the same for programs\n"
         "shiftron --version:      version, commit and backends\n";
}

std::string command_help(const Command& command, bool all_keys) {
  std::string text = wrapped("shiftron " + words_of(command) + ": " + command.summary, 0);
  text += "\nUsage: " + wrapped(usage_of(command), 7) + "\nOptions:\n";
  Rows rows;
  for (const CommandOption& option : own_options(command)) {
    rows.emplace_back("--" + option.name + (option.value_name.empty() ? "" : " " + option.value_name),
                      option.help + note(option.required, option.otherwise));
  }
  text += two_columns(rows);
  if (!command.example.empty()) text += "\nExample:\n  " + command.example + "\n";
  if (!command.configured) return text;
  if (!all_keys) return text + main_keys_help(command);
  const bool of_checkpoint = is_of_checkpoint(command);
  return text + "\nConfiguration keys, in files as 'key = value' under '[section]'" +
         (of_checkpoint ? ",\nthe checkpoint's where they are not given:\n" : ":\n") + keys_help(!of_checkpoint);
}

std::string keys_help(bool defaults) {
  std::string text, section;
  Rows rows;
  const std::vector<Option> keys = option_table();
  for (size_t i = 0; i < keys.size(); ++i) {
    rows.push_back(row_of(keys[i], defaults));
    if (i + 1 < keys.size() && keys[i + 1].section() == keys[i].section()) continue;
    text += "\n[" + keys[i].section() + "]\n" + two_columns(rows);
    rows.clear();
  }
  return text;
}

Json help_json(const std::vector<Command>& commands) {
  Json json = {{"commands", Json::array()}, {"keys", Json::array()}};
  for (const Command& command : commands) {
    Json options = Json::array();
    for (const CommandOption& option : own_options(command)) options.push_back(option_json(option));
    json["commands"].push_back({{"name", words_of(command)},
                                {"summary", command.summary},
                                {"usage", usage_of(command)},
                                {"example", command.example},
                                {"takes_keys", command.configured},
                                {"main_keys", command.main_keys},
                                {"options", options}});
  }
  for (const Option& key : option_table()) json["keys"].push_back(key_json(key));
  return json;
}

}  // namespace shiftron::cli
