// Evaluations held against each other, item by item.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shiftron {

struct ReportFile {
  std::string path{};  // of results_<time>.json
  int64_t among = 1;   // reports of which it is the newest
};
// One evaluation, as BenchmarkReport::write() or the harness left it.
struct Evaluation : ReportFile {
  std::string name{};  // by which tables call it
  nlohmann::ordered_json results{};
};

// `path`: a results file, or a directory that holds such below it, of which the newest is taken. Throws
// Error(bad_input) where there is none, or it is no report.
Evaluation open_evaluation(const std::string& path);
// Short names that differ: the parts of the paths that tell them apart.
void name_evaluations(std::vector<Evaluation>& evaluations);

// A metric of a task, of which both evaluations hold every item's value.
struct PairedDifference {
  std::string task{}, metric{};
  int64_t items = 0;             // that both answered, and that are the same in both
  double first = 0, second = 0;  // the metric over these items
  // second − first, and its standard error, paired by items; of perplexities to first order, that of
  // exp(−m₂) − exp(−m₁) with m the log-likelihood a word or byte. No error of a single item. Not finite where a
  // perplexity exceeds the largest number.
  double difference = 0;
  std::optional<double> error{};
  bool higher_is_better = true;  // the metric
  // By how much the second is better, and its standard error: of perplexities ln(first / second), of others
  // ±difference.
  double gain = 0;
  std::optional<double> gain_error{};
  int64_t wins = 0, losses = 0;  // items in which the second is better, worse
  double sign_test = 1;          // probability of so uneven wins and losses, or more, where both are alike
};

struct Comparison {
  std::string first{}, second{};  // names
  ReportFile first_report{}, second_report{};
  std::vector<PairedDifference> differences{};  // tasks in the first's order
  // What cannot be compared: tasks and metrics that one lacks; items that differ or hold no number, by number.
  std::vector<std::string> faults{};
};

// Every other evaluation against the first. Throws Error(bad_input) where a file of samples is missing or malformed.
std::vector<Comparison> compare_evaluations(const std::vector<Evaluation>& evaluations);

// Two-sided: as few wins or losses as the fewer of them, or fewer, in wins + losses throws of a fair coin.
double sign_test(int64_t wins, int64_t losses);

// A table in Markdown, and behind it a drawing of each difference with twice its error on a common axis.
std::string to_text(const Comparison& comparison);
nlohmann::ordered_json to_json(const Comparison& comparison);

}  // namespace shiftron
