// The union of all subcommands.
#include "cli/command.h"
#include "cli/dispatch.h"

namespace shiftron::cli {

std::vector<Command> all_commands() {
  std::vector<Command> commands;
  for (const auto table :
       {train_commands, evaluate_commands, benchmark_commands, data_commands, generate_data_commands,
        token_file_commands, rewrite_commands, tokenizer_commands, checkpoint_commands, interchange_commands,
        inspect_commands, self_test_commands, preflight_commands, status_commands, compare_commands}) {
    const std::vector<Command> some = table();
    commands.insert(commands.end(), some.begin(), some.end());
  }
  return commands;
}

int dispatch(const std::vector<std::string>& arguments) {
  return dispatch(all_commands(), arguments);
}

}  // namespace shiftron::cli
