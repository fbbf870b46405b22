// `shiftron train`: a run under MPI, or its plan with --dry-run.
#include <fmt/format.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unistd.h>

#include "cli/command.h"
#include "cli/config_reader.h"
#include "cli/process.h"
#include "cli/version.h"
#include "core/hash.h"
#include "parallel/agree.h"
#include "parallel/watchdog.h"
#include "train/stop_signal.h"
#include "train/batches.h"
#include "train/run_report.h"
#include "train/train_run.h"
#include "train/trainer.h"

namespace shiftron::cli {
namespace {

constexpr double kMostRanks = 1'000'000;  // of a dry run

std::vector<CommandOption> train_options() {
  return {
      flag("dry-run", "step the same trainer without memory or data: bytes per rank and category, exchanges per axis"),
      whole_option("ranks", "ranks of the dry run (default: tp * cp * pp)", between(1, kMostRanks)),
      flag("json", "print the dry run as JSON"),
      flag("profile", "time every kernel behind the first step: a table of rank 0 at the end")};
}

nlohmann::ordered_json plan_json(const ParallelLayout& layout, int rank, const Ledger& ledger) {
  const Coordinates at = layout.coordinates(rank);
  nlohmann::ordered_json traffic = nlohmann::ordered_json::object();
  for (const auto& [name, cost] : ledger.traffic()) traffic[name] = {{"calls", cost.calls}, {"bytes", cost.bytes}};
  return {{"rank", rank}, {"tp", at.tp}, {"cp", at.cp}, {"dp", at.dp}, {"pp", at.pp},
          {"memory_bytes", ledger.memory()}, {"total_bytes", ledger.memory_total()}, {"traffic", traffic}};
}

void print_plan(const RunConfig& config, const ParallelLayout& layout, const ParameterCount& parameters,
                const std::vector<nlohmann::ordered_json>& rows) {
  std::cout << fmt::format("{} parameters ({:.4g} B), {} outside embedding and head\n", thousands(parameters.total),
                           static_cast<double>(parameters.total) / 1e9, thousands(parameters.outside_embedding));
  std::cout << fmt::format("{} ranks: tp {} · pp {} · dp {}; {} microbatches a step and rank\n", layout.ranks(),
                           layout.tp, layout.pp, layout.dp,
                           config.train.global_batch / (config.train.micro_batch * layout.dp));
  for (const auto& row : rows) {
    std::cout << fmt::format("\nrank {} (tp {}, pp {}, dp {}): {:.3f} GB\n", row["rank"].get<int>(), row["tp"].get<int>(),
                             row["pp"].get<int>(), row["dp"].get<int>(), row["total_bytes"].get<double>() / 1e9);
    for (const auto& [category, bytes] : row["memory_bytes"].items()) {
      std::cout << fmt::format("  {:<16} {:>12.3f} MB\n", category, bytes.get<double>() / 1e6);
    }
    for (const auto& [name, cost] : row["traffic"].items()) {
      std::cout << fmt::format("  {:<28} {:>7} calls {:>12.3f} MB a step\n", name, cost["calls"].get<int64_t>(),
                               cost["bytes"].get<double>() / 1e6);
    }
  }
}

// One row per kind of rank: those of one stage and dp 0 differ only by uneven vocabulary shards.
int dry_run(const ParsedConfig& parsed) {
  const RunConfig& config = parsed.config;
  const int ranks = static_cast<int>(parsed.integer("ranks", smallest_ranks(config.parallel)));
  validate(config, ranks, Use::dry_run);
  const ParallelLayout layout = make_layout(config.parallel, ranks);
  const ParameterCount parameters = count_parameters(config);
  std::vector<nlohmann::ordered_json> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    const Coordinates at = layout.coordinates(rank);
    if (at.dp != 0 || (at.tp != 0 && at.tp != layout.tp - 1)) continue;
    Ledger ledger;
    const int threads = thread_count(config.device.threads, 1);
    plan_memory(config, layout, rank, threads, ledger);
    rows.push_back(plan_json(layout, rank, ledger));
  }
  if (parsed.has("json")) {
    std::cout << nlohmann::ordered_json{{"ranks", ranks},
                                        {"parameters", parameters.total},
                                        {"parameters_outside_embedding", parameters.outside_embedding},
                                        {"plan", rows}}
                     .dump(2)
              << "\n";
  } else {
    print_plan(config, layout, parameters, rows);
  }
  return 0;
}

// Rewrites one line on a terminal, writes lines elsewhere.
void show_line(const std::string& line) {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  std::cerr << (terminal ? "\r\x1b[K" + line : line + "\n") << std::flush;
}

// Into the log and the events; of ranks that fail alike only the first one speaks. Throws what main() need not tell.
[[noreturn]] void tell_failure(Log& log, const Events& events, const std::string& message, ExitCode code) {
  if (message.empty()) throw Error("", code);
  if (!events.write_failure(static_cast<int>(code), message)) {
    if (log.rank() != 0) log.info("error, told by another rank: " + message);
    leave_to_another(code);
  }
  log.error(message);
  throw Error("", code);
}

int run_train(const CommandLine& line) {
  const ParsedConfig parsed{line, read_config(line)};
  if (parsed.has("dry-run")) return dry_run(parsed);
  const RunConfig& config = parsed.config;
  // What watches outlives MPI, whose end waits for every rank.
  std::optional<Log> log_of_rank;
  Events events;
  std::optional<Watchdog> watchdog_of_rank;
  Watchdog::Section leaving;
  MpiSession session;
  const std::unique_ptr<Communicator> world = session.world();
  agree(*world, [&] { validate(config, world->size()); });

  Log& log = log_of_rank.emplace(world->rank());
  events = Events(config.output.directory, world->rank());
  const int rank = world->rank();
  Watchdog& watchdog = watchdog_of_rank.emplace([&, rank](const std::string& section, double seconds) {
    const std::string message = fmt::format("rank {} on {} has been in \"{}\" for {:.0f} s, past its deadline", rank,
                                            host_name(), section, seconds);
    log_of_rank->error(message);
    events.write("hang", {{"section", section}, {"seconds", seconds}});
    events.write("exit", {{"code", static_cast<int>(ExitCode::hang)}});
  });
  const StopSignal stop(world->size() == 1);
  if (world->rank() == 0) {
    log.info(fmt::format("configuration {} (hash {}):\n{}", config.output.directory,
                         to_hex(xxh3_64(hash_input(config))), to_config_text(config)));
  }
  const int threads = thread_count(config.device.threads, session.local_ranks());
  const RunEnvironment environment{.world = *world, .threads = threads, .log = log, .events = events,
                                   .watchdog = watchdog, .stop_requested = [&] { return stop.requested(); },
                                   .code_version = version_text(), .show_progress = show_line,
                                   .profile = parsed.has("profile")};
  try {
    const ExitCode code = run_training(config, environment);
    if (rank == 0) events.write("exit", {{"code", static_cast<int>(code)}});
    leaving = watchdog.enter("leaving MPI", config.fault.setup_deadline);
    return static_cast<int>(code);
  } catch (const Error& error) {
    tell_failure(log, events, error.what(), error.code());
  } catch (const std::exception& error) {
    tell_failure(log, events, error.what(), ExitCode::crash);
  }
}

int run_dump(const CommandLine& line) {
  const RunConfig config = read_config(line);
  validate(config, smallest_ranks(config.parallel), Use::dump);  // every layout reads the same batches
  std::cout << dump_step(config, line.integer("step")) << "\n";
  return 0;
}

}  // namespace

std::vector<Command> train_commands() {
  return {{"train", "", "trains a model, alone or under mpirun; --dry-run plans it",
           "--config FILE [--config FILE …] [--KEY VALUE …] [--dry-run]", train_options(), true, run_train},
          {"data",
           "dump",
           "prints ids, targets and document starts of a training step as JSON",
           "--config RUN/config.conf --step S",
           {required(whole_option("step", "the step, from 1", between(1, kLargestCount)))},
           true,
           run_dump}};
}

}  // namespace shiftron::cli
