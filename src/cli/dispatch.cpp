// Noun and verb to function; help and suggestions.
#include "cli/dispatch.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/config_reader.h"
#include "cli/help.h"
#include "cli/print_json.h"
#include "cli/version.h"
#include "config/faults.h"
#include "core/check.h"
#include "core/nearest_name.h"
#include "tokenizer/utf8.h"

namespace shiftron::cli {
namespace {

bool asks_for_help(const std::string& word) {
  return word == "--help" || word == "-h";
}

const Command* find(const std::vector<Command>& commands, const std::string& noun, const std::string& verb) {
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const Command& command) { return command.noun == noun && command.verb == verb; });
  return found == commands.end() ? nullptr : &*found;
}

int run(const Command& command, const std::vector<std::string>& words) {
  if (words == std::vector<std::string>{"help"} && std::ranges::none_of(command.options, &CommandOption::bare))
    throw_bad_input("unexpected word 'help'; shiftron ", words_of(command), " --help shows its options");
  const CommandLine line =
      parse_command_line(words, command.configured ? with_configuration(command.options) : command.options);
  if (line.help) {
    std::cout << command_help(command, line.help_all);
    return 0;
  }
  if (!command.configured)
    refuse_faults(line.faults, "the command line", "usage: " + usage_of(command) + " (more with --help)");
  return command.run(line);
}

// Refuses words after `shiftron --help`, `shiftron --version` and `shiftron NOUN --help`.
void refuse_more_words(const std::vector<std::string>& words, size_t known) {
  if (words.size() <= known) return;
  const std::string& last = words[known - 1];
  std::string advice;
  if (asks_for_help(last))
    advice =
        "; shiftron " + (known > 1 ? words[0] + " " : "") + printable(words[known]) + " --help describes one command";
  throw_bad_input("unexpected word '", printable(words[known]), "' after ", last, advice);
}

}  // namespace

int dispatch(const std::vector<Command>& commands, const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::cerr << commands_help(commands);
    return static_cast<int>(ExitCode::bad_input);
  }
  const std::string& noun = arguments[0];
  if (noun == "help" && (asks_for_help(arguments.back()) || arguments == std::vector<std::string>{"help", "help"}))
    return dispatch(commands, {arguments.begin(), arguments.end() - 1});
  if (noun == "help" && arguments.size() > 1) {
    const bool all = arguments.back() == "all";
    refuse_more_words(arguments, all ? 4 : 3);
    std::vector<std::string> words(arguments.begin() + 1, arguments.end() - (all ? 1 : 0));
    words.emplace_back("--help");
    if (all) words.emplace_back("all");
    return dispatch(commands, words);
  }
  if (asks_for_help(noun) || noun == "help") {
    const std::string topic = arguments.size() == 2 ? arguments[1] : "";
    if (topic == "json") {
      print_json(help_json(commands));
    } else {
      if (topic != "all") refuse_more_words(arguments, 1);
      std::cout << commands_help(commands) << (topic == "all" ? keys_help() : "");
    }
    return 0;
  }
  if (noun == "--version") {
    refuse_more_words(arguments, 1);
    std::cout << version_text();
    return 0;
  }
  std::vector<std::string> nouns, verbs;
  for (const Command& command : commands) {
    nouns.push_back(command.noun);
    if (command.noun == noun && !command.verb.empty()) verbs.push_back(command.verb);
  }
  if (std::find(nouns.begin(), nouns.end(), noun) == nouns.end()) {
    throw_bad_input("unknown command '", printable(noun), "'", suggestion(noun, nouns),
                    "; shiftron --help lists all commands");
  }
  const std::string verb = arguments.size() > 1 ? arguments[1] : "";
  if (const Command* command = verb.empty() ? nullptr : find(commands, noun, verb)) {
    return run(*command, {arguments.begin() + 2, arguments.end()});
  }
  if (const Command* command = find(commands, noun, "")) {
    const int code = run(*command, {arguments.begin() + 1, arguments.end()});
    if (!verbs.empty() && std::ranges::any_of(arguments, asks_for_help)) {
      std::cout << "\nRelated commands:";
      for (const std::string& other : verbs) std::cout << " shiftron " << noun << " " << other;
      std::cout << "\n";
    }
    return code;
  }
  if (asks_for_help(verb)) {
    refuse_more_words(arguments, 2);
    std::cout << commands_help(commands, noun);
    return 0;
  }
  std::string known;
  for (const std::string& each : verbs) known += (known.empty() ? "" : ", ") + each;
  if (verb.empty()) throw_bad_input(noun, " needs one of: ", known);
  throw_bad_input("unknown command '", noun, " ", printable(verb), "'", suggestion(verb, verbs), " (", noun,
                  " has: ", known, verb == "help" ? "; shiftron " + noun + " --help says more)" : ")");
}

}  // namespace shiftron::cli
