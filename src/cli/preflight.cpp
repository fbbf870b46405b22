// `shiftron preflight`: checks the hosts of a job.
#include "preflight/preflight.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <set>

#include "cli/command.h"
#include "cli/config_reader.h"
#include "cli/process.h"
#include "config/validate.h"
#include "core/check.h"
#include "core/file.h"
#include "core/log.h"
#include "parallel/agree.h"
#include "parallel/watchdog.h"

namespace shiftron::cli {
namespace {

constexpr int kUsualDeadline = 60;  // seconds

std::vector<CommandOption> preflight_options() {
  return {
      integer_option("ranks",
                     "number of ranks that the job starts; a different number means that launcher and MPI do not match",
                     between(1, kMostRanks)),
      text_option("bad-hosts", "FILE",
                  "new or empty file for the names of unfit hosts, one per line; it stays empty if all hosts are fit"),
      integer_option("deadline", "maximum seconds for each part of the check", between(1, 1'000'000),
                     std::to_string(kUsualDeadline))};
}

// Checked first, because the result could not be kept otherwise.
void require_writable_host_list(const std::string& path) {
  std::error_code error;
  if (!path.empty() && !std::filesystem::is_directory(path, error) &&
      std::filesystem::is_directory(parent_directory(path), error))
    return;
  throw_bad_input("--bad-hosts '", path, "' is not a file that can be written; give a file in an existing folder");
}

// An existing list of host names may be something else, a hostfile for example.
void refuse_non_empty_file(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::is_empty(path, none)) return;
  throw_bad_input("--bad-hosts ", path, " exists and is not empty; remove it, or choose another file");
}

void write_host_names(const std::string& path, const std::vector<HostFault>& faults) {
  std::set<std::string> hosts;
  for (const HostFault& fault : faults) hosts.insert(fault.host);
  std::string lines;
  for (const std::string& host : hosts) lines += host + "\n";
  write_file_durably(path, lines);
}

int run_preflight_command(const CommandLine& line) {
  const ParsedConfig parsed{line, read_config(line)};
  ignore_write_signals();
  Watchdog watchdog([](const Watchdog::Expiry& expiry) {
    print_to_stderr(
        fmt::format("shiftron: preflight: {} takes longer than {:.0f} s (--{}): a host hangs or cannot be reached",
                    expiry.section, expiry.seconds, expiry.key));
  });
  // With this deadline until the command line has been checked.
  Watchdog::Section section = watchdog.enter("the start of MPI on " + host_name(), {kUsualDeadline, "deadline"});
  MpiSession session;
  const std::unique_ptr<HostCommunicator> world = session.world();
  require_same_start(*world, "preflight", parsed, &parsed.config);
  run_on_first_rank(*world, [&] {
    if (parsed.config.reading_faults.empty()) {
      const int64_t wanted = parsed.integer("ranks", world->size());
      if (wanted != world->size()) {
        throw_bad_input(world->size(), " ranks found each other, but --ranks is ", wanted,
                        ": the launcher does not match the program's MPI; use mpirun, or srun --mpi=pmix");
      }
    }
    require_valid(parsed.config, world->size(), Use::train);
    if (parsed.has("bad-hosts")) {
      require_writable_host_list(parsed.text("bad-hosts"));
      refuse_non_empty_file(parsed.text("bad-hosts"));
    }
  });
  const Deadline deadline{static_cast<double>(parsed.integer("deadline")), "deadline"};
  const PreflightResult result =
      run_preflight(parsed.config, share_of(session, parsed.config.device.threads), *world,
                    [&](const std::string& part, const std::optional<Deadline>& own) {
                      section = watchdog.enter(fmt::format("{} on rank {} ({})", part, world->rank(), host_name()),
                                               own && own->seconds > deadline.seconds ? *own : deadline);
                    });
  run_on_first_rank(*world, [&] {
    warn_of_binding(session, "preflight", parsed.config.device.kind, parsed.config.device.threads);
    for (const HostFault& host : result.warnings)
      print_to_stderr(fmt::format("preflight: warning: {}: {}", host.host, host.what));
    if (result.faults.empty()) {
      std::cout << fmt::format("preflight: {} ranks fit, {:.1f} s\n", world->size(), result.seconds) << std::flush;
    }
    std::string text;
    for (const HostFault& fault : result.faults) text += fmt::format("\n  {}: {}", fault.host, fault.what);
    if (!text.empty()) text = "hosts are unfit:" + text;
    try {
      if (parsed.has("bad-hosts")) write_host_names(parsed.text("bad-hosts"), result.faults);
    } catch (const std::exception& error) {
      text += (text.empty() ? "" : "\n") + std::string("--bad-hosts: ") + error.what();
    }
    if (!text.empty()) throw Error(text, ExitCode::crash);
  });
  return 0;
}

}  // namespace

std::vector<Command> preflight_commands() {
  return {{"preflight", "",
           "checks the hosts of a job before a run: files, clocks, disk, matrix products, communication",
           "--config FILE [--KEY VALUE …] [--ranks N]", preflight_options(), true, run_preflight_command,
           "launch/local 4 preflight --config configs/quickstart.conf --ranks 4"}};
}

}  // namespace shiftron::cli
