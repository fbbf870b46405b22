// Entry point: runs the subcommand, and holds the only catch, which turns an error into its exit code.
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <iostream>

#include "cli/command.h"
#include "core/check.h"

namespace {

// The last word of a failed process: the message, unless it has been told, on stderr; the code for the launcher.
int fail(const std::string& message, shiftron::ExitCode code) {
  std::cout.flush();
  if (!message.empty()) std::cerr << "shiftron: " << message << std::endl;
  return static_cast<int>(code);
}

// OpenMP reads how long a waiting thread spins before main runs, and by default it spins for milliseconds: on a busy
// machine on the very core that the thread needs which is waited for.
void limit_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "10000", 1);
  execv("/proc/self/exe", argv);  // where it fails, the default serves
}

}  // namespace

int main(int argc, char** argv) {
  limit_spinning(argv);
  try {
    const int code = shiftron::cli::dispatch({argv + 1, argv + argc});
    if (!std::cout.flush()) return fail("cannot write to stdout", shiftron::ExitCode::crash);
    return code;
  } catch (const shiftron::Error& error) {
    return fail(error.what(), error.code());
  } catch (const std::exception& error) {
    return fail(error.what(), shiftron::ExitCode::crash);
  } catch (...) {
    return fail("unknown exception", shiftron::ExitCode::crash);
  }
}
