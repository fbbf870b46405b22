// One subcommand of `shiftron`: its words, its one-line summary, its function.
#pragma once

#include <string>
#include <vector>

namespace shiftron::cli {

struct Command {
  std::string noun;     // "train", "data"
  std::string verb;     // "build"; empty where the noun stands alone
  std::string summary;  // one line for `shiftron --help`
  // Takes the words behind noun and verb, returns the process's exit code; throws Error.
  int (*run)(const std::vector<std::string>& arguments);
};

// Each file of src/cli/ that holds subcommands has one such function.
std::vector<Command> train_commands();
std::vector<Command> data_commands();
std::vector<Command> tokenizer_commands();
std::vector<Command> evaluate_commands();    // evaluate, generate
std::vector<Command> checkpoint_commands();

// Finds the command, prints help at every level, runs it. Used by main().
int dispatch(const std::vector<std::string>& arguments);

}  // namespace shiftron::cli
