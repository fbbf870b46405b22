// `shiftron train`: a run under MPI, or its plan with --dry-run.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/config_reader.h"
#include "cli/drawing.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "cli/version.h"
#include "config/config_text.h"
#include "config/validate.h"
#include "core/directory_lock.h"
#include "core/file.h"
#include "core/host.h"
#include "core/system_error.h"
#include "evaluate/step_benchmarks.h"
#include "parallel/agree.h"
#include "parallel/launcher.h"
#include "parallel/watchdog.h"
#include "plan/layout_picture.h"
#include "plan/virtual_stages.h"
#include "run/run_report.h"
#include "train/batches.h"
#include "train/device_memory.h"
#include "train/rank_kinds.h"
#include "train/stop_signal.h"
#include "train/train_run.h"
#include "train/trainer.h"

namespace shiftron::cli {
namespace {

constexpr double kLatestTime = 4'102'444'800;  // the end of the year 2099

std::vector<CommandOption> options_of_train() {
  return {
      flag("dry-run", "do not train: print the plan, that is memory per rank and category, and communication per axis"),
      integer_option("ranks",
                     "number of ranks in the dry run (default: as many as were started; if only one, tp * cp * pp)",
                     between(1, kMostRanks)),
      flag("to-start",
           "in the dry run, also check what only a start needs: the keys for data and the run's directory, a device "
           "that this build supports, readable task files"),
      flag("json", "print the dry run's result as JSON"),
      text_option("draw", "FILE",
                  "draw the pipeline schedule, what each stage does when, as SVG (with --dry-run); an existing drawing "
                  "is replaced"),
      integer_option("end-time",
                     "when the job ends, in seconds since 1970: the run saves and exits with code 75 in time",
                     between(1, kLatestTime)),
      flag("profile", "time every kernel after the first step, and print a table for rank 0 at the end")};
}

nlohmann::ordered_json plan_json(const ParallelLayout& layout, const RankKind& kind) {
  const Coordinates at = layout.coordinates(kind.rank);
  nlohmann::ordered_json traffic = nlohmann::ordered_json::object();
  for (const auto& [name, cost] : kind.planned.traffic())
    traffic[name] = {{"calls", cost.calls}, {"bytes", cost.bytes}};
  return {{"rank", kind.rank},
          {"ranks", kind.ranks},
          {"tp", at.tp},
          {"cp", at.cp},
          {"dp", at.dp},
          {"pp", at.pp},
          {"memory_bytes", kind.planned.memory()},
          {"total_bytes", kind.planned.memory_total()},
          {"traffic", traffic}};
}

void print_plan(const RunConfig& config, const ParallelLayout& layout, const ParameterCount& parameters,
                const std::vector<RankKind>& kinds, const std::vector<std::string>& hosts) {
  std::cout << fmt::format("{} parameters ({:.4g} B), {} outside embedding and head\n", thousands(parameters.total),
                           static_cast<double>(parameters.total) / 1e9, thousands(parameters.outside_embedding));
  std::cout << fmt::format("{} ranks: {}; {} microbatches per step and rank\n", layout.ranks(), text_of(layout),
                           microbatches_of_step(config, layout));
  std::cout << "\n" << layout_picture(config, layout, hosts);
  if (const std::string warning = host_warning(layout, hosts); !warning.empty()) std::cout << warning << "\n";
  std::map<int, std::vector<RankKind>> by_work;
  for (const RankKind& kind : kinds) by_work[kind.work].push_back(kind);
  for (const auto& [work, group] : by_work) {
    const auto bytes_of = [](const RankKind& kind) { return kind.planned.memory_total(); };
    const RankKind& most = *std::ranges::max_element(group, {}, bytes_of);
    const int64_t least = bytes_of(*std::ranges::min_element(group, {}, bytes_of));
    const Coordinates at = layout.coordinates(most.rank);
    int64_t ranks = 0;
    for (const RankKind& kind : group) ranks += kind.ranks;
    std::cout << fmt::format("\nrank {} (tp {}, pp {}, dp {})", most.rank, at.tp, at.pp, at.dp);
    if (ranks > 1) std::cout << fmt::format(" for {} ranks", thousands(ranks));
    std::cout << fmt::format(": {:.3f} GB", static_cast<double>(bytes_of(most)) / 1e9);
    if (least < bytes_of(most))
      std::cout << fmt::format(", others down to {:.3f} GB", static_cast<double>(least) / 1e9);
    std::cout << "\n";
    std::cout << memory_table(most.planned);
    for (const auto& [name, cost] : most.planned.traffic()) {
      std::cout << fmt::format("  {:<28} {:>7} calls {:>12.3f} MB per step\n", name, cost.calls,
                               static_cast<double>(cost.bytes) / 1e6);
    }
  }
}

void draw_plan(const RunConfig& config, const ParallelLayout& layout, const std::string& path) {
  refuse_to_replace("draw", path);
  write_drawing("draw", path, draw_run(config, layout));
}

std::vector<std::string> directories_of(const std::vector<DataSource>& sources) {
  std::vector<std::string> directories;
  for (const DataSource& source : sources) directories.push_back(source.directory);
  return directories;
}

// `hosts`: those of all started ranks; `threads`: what this rank would have.
void report_plan(const ParsedConfig& parsed, std::vector<std::string> hosts, int threads) {
  const RunConfig& config = parsed.config;
  const auto started = static_cast<int64_t>(hosts.size());
  const int64_t usual = started > 1 ? started : minimum_ranks(config.parallel);
  const int ranks = static_cast<int>(parsed.integer("ranks", usual));
  const bool to_start = parsed.has("to-start");
  require_valid(config, ranks, to_start ? Use::train : Use::dry_run);
  if (to_start) require_task_items(config);
  const ParallelLayout layout = make_layout(config.parallel, ranks);
  if (parsed.has("draw")) draw_plan(config, layout, parsed.text("draw"));
  const ParameterCount parameters = count_parameters(config);
  if (ranks != started) {  // the plan is for another run than the started one
    hosts.clear();
    threads = thread_count(config.device.threads);
  }
  std::vector<RankKind> kinds = plan_kinds(config, layout, threads);
  for (RankKind& kind : kinds) plan_step_benchmarks(config, layout, kind.rank, threads, kind.planned);
  if (!parsed.has("json")) return print_plan(config, layout, parameters, kinds, hosts);
  nlohmann::ordered_json plan = nlohmann::ordered_json::array();
  for (const RankKind& kind : kinds) plan.push_back(plan_json(layout, kind));
  print_json(
      {{"ranks", ranks},
       {"configuration", to_config_text(config)},
       {"data", {{"train", directories_of(config.data.train)}, {"validation", directories_of(config.data.validation)}}},
       {"parameters", parameters.total},
       {"parameters_outside_embedding", parameters.outside_embedding},
       {"plan", plan}},
      2);
}

// Of all started ranks only the first plans and prints.
int dry_run(const ParsedConfig& parsed) {
  MpiSession session;
  const std::unique_ptr<HostCommunicator> world = session.world();
  require_same_start(*world, "train", parsed, &parsed.config);
  const std::vector<std::string> hosts = world->gather_text(host_name(), 0);
  const int threads = share_of(session, parsed.config.device.threads).threads;
  run_on_first_rank(*world, [&] { report_plan(parsed, hosts, threads); });
  return 0;
}

// Rewrites one line on a terminal, writes lines elsewhere.
void show_line(const std::string& line) {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  std::cerr << (terminal ? "\r\x1b[K" + line : line + "\n") << std::flush;
}

// What the watchdog found on `rank`, which is the name to print.
std::string text_of(const Watchdog::Expiry& expiry, const std::string& rank) {
  if (!expiry.fault.empty()) return fmt::format("{} in \"{}\": {}", rank, expiry.section, expiry.fault);
  std::string text = fmt::format("{} has been in \"{}\" for {:.0f} s, past its deadline ({})", rank, expiry.section,
                                 expiry.seconds, expiry.key);
  if (expiry.for_files) {
    return text +
           fmt::format(
               "; it waits for the file system: run the same command again when that responds, or with a larger {}",
               expiry.key);
  }
  return expiry.under_way.empty() ? text : text + "; it waits for " + expiry.under_way;
}

// A start that is refused before it has opened the run's directory leaves a line in the events of an existing run.
void record_refused_start(const RunConfig& config, int rank, const std::string& message, ExitCode code) {
  const std::string& directory = config.output.directory;
  if (message.empty() || code != ExitCode::bad_input || !std::filesystem::exists(directory + "/events.jsonl")) return;
  Events(directory, rank).write("refused", {{"code", static_cast<int>(code)}, {"error", message}});
}

// Reports a failure to the log, the events and the other ranks; if ranks fail with the same error, only the first
// reports it. Throws an Error that main() does not print again.
[[noreturn]] void report_failure(Log& log, const Events& events, MpiSession& session, const std::string& message,
                                 ExitCode code) {
  if (message.empty()) throw Error("", code);
  if (!events.write_failure(static_cast<int>(code), message)) {
    if (log.rank() != 0) log.info("error, also reported by another rank: " + message);
    end_without_report(code);
  }
  log.error(log.rank() == 0 ? message : message + " (on " + host_name() + ")");  // the log's lines carry the rank
  session.report_failure(static_cast<int>(code));
  throw Error("", code);
}

int run_train(const CommandLine& line) {
  const ParsedConfig parsed{line, read_config(line)};
  if (parsed.has("dry-run")) return dry_run(parsed);
  for (const char* option : {"draw", "ranks", "to-start", "json"}) {
    if (parsed.has(option)) throw_bad_input("--", option, " only applies to a plan; add --dry-run");
  }
  const RunConfig& config = parsed.config;
  ignore_write_signals();
  const bool launched = !is_started_without_launcher();
  block_stop_signals(launched);
  // Whatever watches must outlive MPI, whose end waits for every rank.
  std::optional<Log> log_of_rank;
  Events events;
  std::optional<Watchdog> watchdog_of_rank;
  Watchdog::Section leaving;
  MpiSession session;
  const std::unique_ptr<HostCommunicator> world = session.world();
  try {
    require_same_start(*world, "train", parsed, &config);
    run_on_first_rank(*world, [&] { require_valid(config, world->size(), Use::train); });
  } catch (const Error& error) {
    record_refused_start(config, world->rank(), error.what(), error.code());
    throw;
  }

  Log& log = log_of_rank.emplace(world->rank());
  const int rank = world->rank();
  Watchdog& watchdog = watchdog_of_rank.emplace([&, rank](const Watchdog::Expiry& expiry) {
    const std::string message = text_of(expiry, fmt::format("rank {} on {}", rank, host_name()));
    log_of_rank->error(message);
    events.write("hang", {{"section", expiry.section},
                          {"seconds", expiry.seconds},
                          {"deadline", expiry.key},
                          {"under_way", expiry.under_way},
                          {"fault", expiry.fault}});
    events.write("exit", {{"code", static_cast<int>(ExitCode::hang)}, {"error", message}});
    if (expiry.for_files) session.report_failure(static_cast<int>(ExitCode::hang));  // the others do not find this hang
  });
  session.listen_for_failures(
      [&](int peer, int code) {
        log.info(fmt::format("this rank stops because rank {} ended with code {}", peer, code));
        std::_Exit(code);
      },
      watchdog);
  std::unique_ptr<DirectoryLock> lock;  // held until the last line is written
  const StopSignal stop(launched);
  std::optional<std::chrono::system_clock::time_point> end_time;
  if (parsed.has("end-time")) {
    end_time = std::chrono::system_clock::time_point(std::chrono::seconds(parsed.integer("end-time")));
  }
  const HostShare share = share_of(session, config.device.threads);
  if (rank == 0) {
    if (const std::string warning = binding_warning(session, config.device.kind, config.device.threads);
        !warning.empty())
      log.warning(warning);
  }
  const RunEnvironment environment{.world = *world,
                                   .share = share,
                                   .log = log,
                                   .events = events,
                                   .watchdog = watchdog,
                                   .lock = lock,
                                   .stop_requested = [&] { return stop.requested(); },
                                   .code_version = version_text(),
                                   .show_progress = show_line,
                                   .end_time = end_time,
                                   .make_evaluation =
                                       [&](const StoredTokenizer& tokenizer) {
                                         return make_step_benchmarks(config, tokenizer, version_text(), *world, share,
                                                                     log);
                                       },
                                   .profile = parsed.has("profile")};
  try {
    const ExitCode code = run_training(config, environment);
    if (rank == 0) events.write("exit", {{"code", static_cast<int>(code)}});
    leaving = watchdog.enter("leaving MPI", setup_deadline(config));
    return static_cast<int>(code);
  } catch (const std::exception& exception) {
    const Error error = as_error(exception);
    if (!events.writes()) record_refused_start(config, rank, error.what(), error.code());
    report_failure(log, events, session, error.what(), error.code());
  }
}

int run_dump(const CommandLine& line) {
  const RunConfig config = read_config(line);
  validate(config, minimum_ranks(config.parallel), Use::dump);  // every layout reads the same batches
  std::cout << dump_step(config, line.integer("step")) << "\n";
  return 0;
}

}  // namespace

std::vector<Command> train_commands() {
  return {{"train",
           "",
           "trains a model, on one rank or under mpirun; with --dry-run, only plans it",
           "--config FILE [--config FILE …] [--KEY VALUE …] [--dry-run]",
           options_of_train(),
           true,
           run_train,
           "shiftron train --config configs/quickstart.conf --data.train data/train --output.directory run",
           {"data.train", "output.directory", "train.steps", "train.global_batch", "train.precision",
            "optimizer.learning_rate", "parallel.tp", "parallel.pp", "checkpoint.every", "device.kind"}},
          {"data",
           "dump",
           "prints the ids, targets and document starts of a training step as JSON",
           "--config RUN/config.conf --step S",
           {required(integer_option("step", "number of the step, from 1", between(1, kLargestCount)))},
           true,
           run_dump,
           "shiftron data dump --config run/config.conf --step 1"}};
}

}  // namespace shiftron::cli
