// Threads per rank, and what ends a process.
#include "cli/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <map>
#include <new>
#include <set>

#include "cli/version.h"
#include "config/faults.h"
#include "config/options.h"
#include "config/validate.h"
#include "core/host_limits.h"
#include "core/log.h"
#include "core/system_error.h"
#include "evaluate/step_benchmarks.h"
#include "kernels/processors.h"
#include "parallel/launcher.h"

namespace shiftron::cli {
namespace {

std::string lines_of(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, "\n"));
}

}  // namespace

void require_valid(const RunConfig& config, int ranks, Use use) {
  std::vector<std::string> faults = find_faults(config, ranks, use);
  const std::vector<std::string> of_tasks = find_task_faults(config);
  faults.insert(faults.end(), of_tasks.begin(), of_tasks.end());
  refuse_faults(faults, "the configuration");
}

std::vector<RankSetting> given_keys(const RunConfig& config) {
  std::vector<RankSetting> given;
  for (const Option& option : option_table()) given.push_back({option.key, lines_of(option.write(config))});
  return given;
}

void require_same_start(ControlPlane& world, const std::string& command, const CommandLine& line,
                        const RunConfig* config) {
  std::vector<RankSetting> given = {{"the command", command}};
  // preflight itself compares the program's bytes on each host, and names the odd hosts so that a job can leave them
  // out.
  if (command != "preflight") given.push_back({"the program", build_text()});
  const std::vector<Option> keys = option_table();
  for (const auto& [name, values] : line.values) {
    // A configuration file's content matters, not its path.
    if (name == "config" || (config != nullptr && std::ranges::find(keys, name, &Option::key) != keys.end())) continue;
    given.push_back({"--" + name, values == std::vector<std::string>{""} ? "given" : lines_of(values)});
  }
  given.push_back({"faults of the command line", lines_of(line.faults)});
  if (config != nullptr) {
    given.push_back({"faults of the configuration", lines_of(config->reading_faults)});
    for (RankSetting& key : given_keys(*config)) given.push_back(std::move(key));
  }
  require_same_settings(world, given);
}

int thread_count(int wanted) {
  return thread_count(wanted, {processors_of_process()}, 0, processor_quota());
}

int thread_count(int wanted, const std::vector<std::vector<int>>& processors, int local_rank, int quota) {
  if (wanted > 0) return wanted;
  std::map<int, int> users;
  for (const std::vector<int>& of_rank : processors) {
    for (const int processor : of_rank) ++users[processor];
  }
  double share = 0.0;
  for (const int processor : processors[static_cast<size_t>(local_rank)]) share += 1.0 / users[processor];
  // With more threads than the quota, those that wait for others of their team would use up the others' time.
  if (quota > 0) share = std::min(share, static_cast<double>(quota) / static_cast<double>(processors.size()));
  return std::max(static_cast<int>(share + 1e-6), 1);  // thirds add up to a little less than one
}

HostShare share_of(const MpiSession& session, int threads) {
  return {.threads = thread_count(threads, session.local_processors(), session.local_rank(), processor_quota()),
          .local_rank = session.local_rank()};
}

std::string binding_warning(const std::vector<std::vector<int>>& processors, size_t processors_of_host) {
  std::set<int> used;
  for (const std::vector<int>& of_rank : processors) used.insert(of_rank.begin(), of_rank.end());
  const size_t ranks = processors.size();
  if (used.size() >= processors_of_host) return "";
  return fmt::format(
      "the launcher has bound the {} on {} to {} of its {} processors; to use all: mpirun --bind-to none, or --map-by "
      "ppr:{}:node:PE={} --bind-to core; srun --cpu-bind=none",
      ranks == 1 ? "rank" : fmt::format("{} ranks", ranks), host_name(), used.size(), processors_of_host, ranks,
      std::max<size_t>(1, processors_of_host / ranks));
}

std::string binding_warning(const MpiSession& session, DeviceChoice device, int threads) {
  if (is_started_without_launcher() || device == DeviceChoice::cuda || threads > 0) return "";
  return binding_warning(session.local_processors(), processors_of_host().size());
}

void warn_of_binding(const MpiSession& session, const std::string& command, DeviceChoice device, int threads) {
  if (session.rank() != 0) return;
  const std::string warning = binding_warning(session, device, threads);
  if (!warning.empty()) print_to_stderr(command + ": warning: " + warning);
}

void ignore_write_signals() {
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
}

void handle_thread_memory_exhaustion() {
  // Made now, because later there may be no memory for them.
  static const Error lack = as_error(std::bad_alloc());
  static const std::string message = std::string("\nshiftron: ") + lack.what() + "\n";
  static const std::terminate_handler otherwise = std::get_terminate();
  std::set_terminate([] {
    try {
      if (const std::exception_ptr reason = std::current_exception()) std::rethrow_exception(reason);
    } catch (const std::bad_alloc&) {
      if (::write(STDERR_FILENO, message.data(), message.size()) < 0) ::_exit(static_cast<int>(ExitCode::crash));
      ::_exit(static_cast<int>(lack.code()));
    } catch (...) {  // left to the previous handler
    }
    otherwise();
  });
}

}  // namespace shiftron::cli
