// Benchmarks on the command line: running them, listing them, comparing their answers.
#include "cli/benchmarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/print_json.h"
#include "cli/version.h"
#include "config/options.h"
#include "config/task_names.h"
#include "core/check.h"
#include "core/foreign_text.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "evaluate/benchmarks.h"
#include "evaluate/tasks/benchmark_compare.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kList = "list";    // instead of tasks
constexpr double kMostWindows = 0x1p53;  // up to here a double holds every whole number

Json to_json(const ResultRow& row) {
  Json json = {{"name", row.name},
               {"group", row.is_group},
               {"metric", row.metric},
               {"items", row.items},
               {"value", row.estimate.value},
               {"error", nullptr},
               {"fewshot", nullptr},
               {"higher_is_better", row.higher_is_better}};
  if (row.estimate.error) json["error"] = *row.estimate.error;
  if (row.is_group) {
    json["macro"] = row.macro;
  } else {
    json["fewshot"] = row.fewshot;
  }
  return json;
}

// Joins at most a few of them.
std::string joined(const std::vector<std::string>& texts) {
  constexpr size_t kMost = 10;
  std::string text;
  for (size_t i = 0; i < std::min(texts.size(), kMost); ++i) text += (text.empty() ? "" : ", ") + texts[i];
  return texts.size() > kMost ? text + ", … (" + std::to_string(texts.size()) + " in total)" : text;
}

int run_compare(const CommandLine& line) {
  std::vector<Evaluation> evaluations;
  for (const std::string& path : line.texts("directory")) evaluations.push_back(open_evaluation(path));
  if (evaluations.size() < 2) {
    throw_bad_input("evaluate compare needs at least two evaluations; the others are compared with the first");
  }
  name_evaluations(evaluations);
  const std::vector<Comparison> comparisons = compare_evaluations(evaluations);
  Json all = Json::array();
  for (const Comparison& comparison : comparisons) {
    if (line.has("json")) {
      all.push_back(shiftron::to_json(comparison));
    } else {
      std::cout << (&comparison == &comparisons.front() ? "" : "\n") << to_text(comparison);
    }
  }
  if (line.has("json")) print_json({{"comparisons", all}});
  return 0;
}

}  // namespace

std::vector<CommandOption> benchmark_options() {
  std::map<std::string, std::string> help;  // of the keys of [evaluation], which mean the same for a run
  for (const Option& key : option_table()) help[key.key] = key.help;
  CommandOption beginning = text_option("bos", names_joined<BeginningToken>("|"), help.at("evaluation.bos"),
                                        to_string(BeginningToken::tokenizer));
  const auto names = names_of(BeginningToken{});
  beginning.choices = {names.begin(), names.end()};
  return {text_option("tasks", "NAME[,NAME]", help.at("evaluation.tasks")),
          text_option("output", "DIR", "directory for the tasks' reports; without it, only the table is printed"),
          integer_option("fewshot", help.at("evaluation.fewshot"), at_least(0)),
          real_option(
              "limit",
              help.at("evaluation.limit") + "; without --tasks, the number of windows to read from the start of --data",
              above(0)),
          beginning,
          integer_option("max-length", "longest input in tokens (default: train.sequence_length)", at_least(2)),
          integer_option("max-gen-toks", help.at("evaluation.max_gen_toks"), at_least(1)),
          flag("boundary-fallback", help.at("evaluation.boundary_fallback")),
          integer_option("token-budget", "maximum tokens per microbatch", at_least(1),
                         std::to_string(ScorerOptions{}.token_budget))};
}

bool needs_data(const CommandLine& line) {
  if (!line.has("tasks")) return true;
  const std::vector<std::string> names = split_task_names(line.text("tasks"));
  try {
    TaskRegistry().select(names);
  } catch (const Error& error) {
    rethrow_system_error(error);
    return false;
  }
  return std::ranges::any_of(names, reads_dataset);
}

void check_benchmark_options(CommandLine& line) {
  if (line.has("tasks")) {
    const std::vector<std::string> names = split_task_names(line.text("tasks"));
    if (std::ranges::find(names, kList) != names.end())
      line.faults.push_back("--tasks list prints the available tasks and cannot be combined with other tasks");
    if (line.has("output") && line.text("output").empty())
      line.faults.push_back("--output is empty: give a directory, or omit --output to write no report");
    return;
  }
  const double limit = line.real("limit");
  if (limit != std::floor(limit) || limit > kMostWindows) {
    line.faults.push_back("--limit '" + line.text("limit") +
                          "' is not a whole number: without --tasks it counts windows");
  }
  for (const CommandOption& option : benchmark_options()) {
    if (option.name == "limit") continue;
    if (line.has(option.name)) line.faults.push_back("--" + option.name + " only applies with --tasks");
  }
}

bool wants_task_list(const CommandLine& line) {
  return line.text("tasks") == kList;
}

int list_tasks(const CommandLine& line) {
  const std::vector<ListedTask> listed = TaskRegistry().list();
  Json all = Json::array();
  for (const ListedTask& task : listed) {
    if (line.has("json")) {
      all.push_back({{"name", task.name},
                     {"help", task.help},
                     {"group", task.is_group},
                     {"own", task.own},
                     {"dataset", task.dataset},
                     {"origin", task.origin},
                     {"folder", task.folder},
                     {"files", task.files},
                     {"members", task.members}});
      continue;
    }
    std::cout << printable_line(task.name) << (task.own ? " (own)" : "") << ": " << printable_line(task.help) << "\n";
    if (task.is_group) std::cout << "    " << printable_line(joined(task.members)) << "\n";
    if (task.folder.empty()) continue;
    std::cout << "    data: " << task.dataset << (task.origin.empty() ? "" : ", or " + task.origin) << "\n"
              << "    read from DATA, the first of these that exists for each split: " << joined(task.files) << "\n";
  }
  if (line.has("json")) print_json({{"tasks", all}});
  return 0;
}

int run_tasks(const CommandLine& line, const CheckpointModel& model, HostCommunicator& world, const HostShare& share) {
  BenchmarkOptions options{
      .tasks = split_task_names(line.text("tasks")), .data = line.text("data"), .output = line.text("output")};
  if (line.has("fewshot")) options.task.fewshot = line.integer("fewshot");
  if (line.has("limit")) options.task.limit = line.real("limit");
  if (line.has("max-gen-toks")) options.task.most_tokens = line.integer("max-gen-toks");
  options.scorer.max_length = line.integer("max-length");
  options.scorer.token_budget = line.integer("token-budget");
  options.scorer.boundary_fallback = line.has("boundary-fallback");
  options.scorer.beginning = from_string<BeginningToken>(line.text("bos")).value();
  options.scorer.progress = true;
  const BenchmarkOutcome outcome = run_benchmarks(model, options, version_text(), world, share);
  if (world.rank() != 0) return 0;
  if (line.has("json")) {
    Json rows = Json::array();
    for (const ResultRow& row : outcome.rows) rows.push_back(to_json(row));
    print_json(
        {{"results", outcome.results_path.empty() ? Json(nullptr) : Json(outcome.results_path)}, {"rows", rows}});
    return 0;
  }
  std::cout << results_table(outcome.rows);
  if (outcome.results_path.empty()) {
    std::cout << "\nThese results are not saved; with --output DIR they are, for `shiftron evaluate compare` to "
                 "compare item by item\n";
    return 0;
  }
  std::cout << "\nreport: " << outcome.results_path << "\nnext: shiftron evaluate compare "
            << shell_word(options.output) << " OTHER\n";
  return 0;
}

std::vector<Command> benchmark_commands() {
  CommandOption evaluations = directories("reports of evaluations, or directories that contain them", 2);
  evaluations.values = kUnlimited;
  return {{"evaluate",
           "compare",
           "compares evaluations with the first one, item by item",
           "DIR DIR [DIR …]",
           {evaluations, json_flag()},
           false,
           run_compare,
           "shiftron evaluate compare report-vanilla report-kv-shift"}};
}

}  // namespace shiftron::cli
