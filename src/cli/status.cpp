// `shiftron status`: the state of a run.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "cli/command.h"
#include "cli/config_reader.h"
#include "cli/print_json.h"
#include "cli/standard_descriptors.h"
#include "config/config_text.h"
#include "core/file.h"
#include "core/host.h"
#include "core/log.h"
#include "core/system_error.h"
#include "run/run_status.h"

namespace shiftron::cli {
namespace {

std::vector<CommandOption> status_options() {
  return {directories("the run's directory"),
          flag("follow",
               "refresh every two seconds until the run is done or has failed; with --json, print one line each time"),
          json_flag()};
}

int terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Takes the number of steps from the configuration of the run's last start: none before the first start; none, with a
// fault, if it cannot be read.
RunStatus status_of(const std::string& directory, RunStatusReader& reader) {
  const std::string path = directory + "/config.conf";
  std::optional<int64_t> steps;
  std::string fault;
  if (std::filesystem::exists(path)) {
    try {
      const RunConfig config = read_config_text(read_file(path, kLargestConfiguration), path);
      if (config.reading_faults.empty()) {
        steps = config.train.steps;
      } else {
        fault = config.reading_faults.front();
      }
    } catch (const Error& error) {
      fault = error.what();
    }
  }
  RunStatus status = reader.read(steps, seconds_since_1970());
  if (!fault.empty()) status.steps_fault = "the run's number of steps is unknown: " + fault;
  return status;
}

// Errors of the machine, or of the way to a file system, may be over at the next look.
bool may_pass(const std::exception& error) {
  return dynamic_cast<const SystemError*>(&error) != nullptr ||
         dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr;
}

int run_status(const CommandLine& line) {
  const std::string directory = line.texts("directory").front();
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  RunStatusReader reader(directory);
  std::optional<std::pair<int64_t, RunStatus::State>> shown;  // without a terminal only changes of these are printed
  std::optional<RunStatus> status;
  for (;; std::this_thread::sleep_for(std::chrono::seconds(2))) {
    try {
      status = status_of(directory, reader);
    } catch (const std::exception& error) {
      if (!line.has("follow") || !status || !may_pass(error)) throw;  // the first look reports errors
      if (stdout_reader_is_gone()) return 0;
      print_to_stderr(std::string("shiftron: ") + error.what() + "; --follow tries again");
      continue;
    }
    if (line.has("json")) {
      print_json(to_json(*status), line.has("follow") ? -1 : 1);
    } else if (const std::pair seen{status->step, status->state}; terminal || seen != shown) {
      if (line.has("follow") && terminal) write_to_stdout("\x1b[H\x1b[2J");
      std::cout << to_text(*status, terminal_width());
      shown = seen;
    }
    using State = RunStatus::State;
    const bool over = status->state == State::done || status->state == State::failed;
    if (!line.has("follow") || over || !std::cout.flush() || stdout_reader_is_gone()) return 0;
  }
}

}  // namespace

std::vector<Command> status_commands() {
  return {{"status", "",
           "shows the state of a run: hosts, step, loss, speed, time lost to restarts; reads only its files",
           "RUN [--follow] [--json]", status_options(), false, run_status, "shiftron status run --follow"}};
}

}  // namespace shiftron::cli
