// Measures how fast a loaded model answers the items of benchmark tasks, for evaluate_vs_harness.py.
//   answer_items --checkpoint STEP_DIR --data DIR [--limit N] [--max-length N] [--precision fp32|bf16] [--budget N]
//   [--threads N]
// Under mpirun all ranks are data-parallel. Prints a line of JSON when it is ready. Each line "TASK[,TASK] EXAMPLES" of
// stdin is answered with one: {"items", "seconds", "log_likelihoods"}. The seconds are those from requests as texts to
// their log-likelihoods, including tokens, plan, passes and exchange.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command_line.h"
#include "cli/process.h"
#include "evaluate/scorer.h"
#include "evaluate/tasks/python_text.h"
#include "evaluate/tasks/task.h"
#include "program.h"

namespace shiftron {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

cli::CommandLine read_line(const std::vector<std::string>& arguments) {
  return cli::parse_command_line(
      arguments, {cli::required(cli::text_option("checkpoint", "STEP_DIR", "a step directory of a run")),
                  cli::required(cli::text_option("data", "DIR", "where the files of tasks are")),
                  cli::real_option("limit", "items of each task", at_least(0)),
                  cli::integer_option("max-length", "tokens that the model reads at once", at_least(2)),
                  cli::text_option("precision", "fp32|bf16", "of the passes", "fp32"),
                  cli::integer_option("budget", "tokens of a microbatch", at_least(1),
                                    std::to_string(ScorerOptions{}.token_budget)),
                  cli::integer_option("threads", "of a rank", at_least(1))});
}

struct Asked {
  size_t items = 0;
  std::vector<Request> requests;
};

// "TASK[,TASK] EXAMPLES"
Asked asked_by(const std::string& words, const std::string& data, double limit) {
  const std::vector<std::string> parts = python::split(words, " ");
  if (parts.size() != 2) throw_bad_input("'", words, "' is not TASK[,TASK] EXAMPLES");
  Asked asked;
  for (const std::string& name : python::split(parts[0], ",")) {
    const LoadedTask task = TaskRegistry().load(name, data, {.fewshot = std::stoll(parts[1]), .limit = limit});
    asked.items += task.items.size();
    for (const Item& item : task.items)
      asked.requests.insert(asked.requests.end(), item.requests.begin(), item.requests.end());
  }
  return asked;
}

int run(const std::vector<std::string>& arguments) {
  const cli::CommandLine line = read_line(arguments);
  if (!line.faults.empty()) throw_bad_input(line.faults.front());
  MpiSession session;
  const auto world = session.world();
  cli::require_same_start(*world, "answer_items", line);
  CheckpointModel model = open_checkpoint(line.text("checkpoint"));
  const auto precision = from_string<Precision>(line.text("precision"));
  if (!precision) throw_bad_input("--precision is '", line.text("precision"), "', not fp32 or bf16");
  model.config.parallel = {};
  model.config.train.precision = *precision;
  const HostShare share = cli::share_of(session, static_cast<int>(line.integer("threads")));
  const ScorerOptions scoring{.max_length = line.integer("max-length"), .token_budget = line.integer("budget")};
  const bool speaks = world->rank() == 0;
  if (speaks) std::cout << json{{"threads", share.threads}, {"ranks", world->size()}}.dump() << std::endl;
  std::optional<Scorer> scorer;
  for (std::string words, before;; before = words) {
    if (speaks && !std::getline(std::cin, words)) words.clear();
    words = world->broadcast_text(words, 0);
    if (words.empty()) return 0;
    if (words != before) scorer.emplace(model, *world, share);  // its microbatches suit what it was first asked
    const Asked asked = asked_by(words, line.text("data"), line.real("limit"));
    const auto start = Clock::now();
    const std::vector<Answer> answers = scorer->answer(asked.requests, scoring);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::vector<double> found;
    for (const Answer& answer : answers) found.push_back(answer.log_likelihood);
    if (speaks) {
      std::cout << json{{"items", asked.items}, {"seconds", seconds}, {"log_likelihoods", found}}.dump()
                << std::endl;
    }
  }
}

}  // namespace
}  // namespace shiftron

int main(int argc, char** argv) {
  return shiftron::run_program("answer_items", shiftron::run, argc, argv);
}
