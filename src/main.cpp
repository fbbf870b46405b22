// Entry point: runs the subcommand; the last catch turns an error into its exit code.
#include <exception>
#include <iostream>

#include "cli/command.h"
#include "cli/standard_descriptors.h"
#include "core/check.h"
#include "core/host_limits.h"
#include "core/log.h"
#include "core/system_error.h"
#include "parallel/agree.h"
#include "parallel/launcher.h"

namespace {

// Ends a failed process: prints the message to stderr unless it is empty because it was already reported, names the
// rank if it is not the first, and returns the exit code.
int fail(const std::string& message, shiftron::ExitCode code) {
  std::cout.flush();
  const int rank = shiftron::launched_tasks().rank;
  const std::string place = rank > 0 ? shiftron::place_of(rank) + ": " : "";
  if (!message.empty()) shiftron::print_to_stderr("shiftron: " + place + message);
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    shiftron::cli::open_standard_descriptors();
    shiftron::raise_open_files();
    const shiftron::cli::PrintableStdout printable;
    const int code = shiftron::cli::dispatch({argv + 1, argv + argc});
    // A reader that has left has read what it wanted.
    if (!std::cout.flush() && !shiftron::cli::stdout_reader_is_gone())
      return fail("cannot write to stdout", shiftron::ExitCode::crash);
    return code;
  } catch (const std::exception& exception) {
    const shiftron::Error error = shiftron::as_error(exception);
    return fail(error.what(), error.code());
  } catch (...) {
    return fail("unknown exception", shiftron::ExitCode::crash);
  }
}
