// Noun and verb to function; help and suggestions.
#include "cli/dispatch.h"

#include <algorithm>
#include <iostream>

#include "cli/version.h"
#include "core/check.h"
#include "core/nearest_name.h"

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

int run(const Command& command, std::vector<std::string> rest) {
  if (!rest.empty() && rest.front() == "-h") rest.front() = "--help";
  return command.run(rest);
}

}  // namespace

std::string commands_help(const std::vector<Command>& commands, const std::string& noun) {
  std::string text = noun.empty() ? "Shiftron trains language models with KV shifting attention.\n\nUsage: shiftron "
                                    "COMMAND [options]\n\nCommands:\n"
                                  : "Usage: shiftron " + noun + " COMMAND [options]\n\nCommands:\n";
  std::size_t widest = 0;
  const auto words = [](const Command& command) {
    return command.noun + (command.verb.empty() ? "" : " " + command.verb);
  };
  for (const Command& command : commands) widest = std::max(widest, words(command).size());
  for (const Command& command : commands) {
    if (!noun.empty() && command.noun != noun) continue;
    std::string left = words(command);
    left.resize(widest + 2, ' ');
    text += "  " + left + command.summary + "\n";
  }
  text += "\nshiftron COMMAND --help says more about one command";
  return text + (noun.empty() ? "; shiftron --version prints version, commit and backends.\n" : ".\n");
}

int dispatch(const std::vector<Command>& commands, const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::cerr << commands_help(commands);
    return static_cast<int>(ExitCode::bad_input);
  }
  const std::string& noun = arguments[0];
  if (asks_for_help(noun) || noun == "help") {
    std::cout << commands_help(commands);
    return 0;
  }
  if (noun == "--version") {
    std::cout << version_text();
    return 0;
  }
  std::vector<std::string> nouns, verbs;
  for (const Command& command : commands) {
    nouns.push_back(command.noun);
    if (command.noun == noun && !command.verb.empty()) verbs.push_back(command.verb);
  }
  if (std::find(nouns.begin(), nouns.end(), noun) == nouns.end()) {
    throw_bad_input("unknown command '", noun, "'", suggestion(noun, nouns), "; shiftron --help lists all");
  }
  const std::string verb = arguments.size() > 1 ? arguments[1] : "";
  if (const Command* command = verb.empty() ? nullptr : find(commands, noun, verb)) {
    return run(*command, {arguments.begin() + 2, arguments.end()});
  }
  if (const Command* command = find(commands, noun, "")) return run(*command, {arguments.begin() + 1, arguments.end()});
  if (asks_for_help(verb)) {
    std::cout << commands_help(commands, noun);
    return 0;
  }
  std::string known;
  for (const std::string& each : verbs) known += (known.empty() ? "" : ", ") + each;
  if (verb.empty()) throw_bad_input(noun, " needs one of: ", known);
  throw_bad_input("unknown command '", noun, " ", verb, "'", suggestion(verb, verbs), "; ", noun, " has: ", known);
}

}  // namespace shiftron::cli
