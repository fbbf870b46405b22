// One subcommand of `shiftron`: its words, its one-line summary, its options, its function.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace shiftron::cli {

struct Command {
  std::string noun;                    // "train", "data"
  std::string verb;                    // "build"; empty for the noun alone
  std::string summary;                 // one line for `shiftron --help`
  std::string usage;                   // the words after noun and verb: "--input FILE… --output DIR"
  std::vector<CommandOption> options;  // all of its own options; dispatch() adds --help
  // Also takes --config and every key of the configuration. run() then gets a command line that may have faults, which
  // read_config() joins with those of the configuration; all other commands get command lines without faults.
  bool configured = false;
  // Returns the process's exit code; throws Error.
  int (*run)(const CommandLine& line) = nullptr;
  std::string example{};                 // a whole line for --help, "shiftron data build …"
  std::vector<std::string> main_keys{};  // configuration keys that --help shows; --help all shows every key
};

// Each file of src/cli/ that holds subcommands has one such function.
std::vector<Command> train_commands();
std::vector<Command> data_commands();
std::vector<Command> generate_data_commands();  // data generate
std::vector<Command> token_file_commands();     // data import, data export
std::vector<Command> rewrite_commands();        // data merge, data split
std::vector<Command> tokenizer_commands();
std::vector<Command> evaluate_commands();   // evaluate, generate
std::vector<Command> benchmark_commands();  // evaluate compare
std::vector<Command> checkpoint_commands();
std::vector<Command> interchange_commands();  // checkpoint export, import
std::vector<Command> inspect_commands();      // inspect heads
std::vector<Command> self_test_commands();
std::vector<Command> preflight_commands();
std::vector<Command> status_commands();
std::vector<Command> compare_commands();

// All of them, in the order in which help lists them.
std::vector<Command> all_commands();

// Finds the command, prints help at every level, runs it. Used by main().
int dispatch(const std::vector<std::string>& arguments);

}  // namespace shiftron::cli
