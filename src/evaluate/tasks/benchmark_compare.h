// Compares evaluations, item by item.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shiftron {

struct ReportFile {
  std::string path{};  // of results_<time>.json
  int64_t among = 1;   // number of reports found, of which it is the newest
};
// One evaluation, as written by BenchmarkReport::write() or the harness.
struct Evaluation : ReportFile {
  std::string name{};  // its name in tables
  nlohmann::ordered_json results{};
};

// `path`: a results file, or a directory, whose newest results file is used (searched recursively). Throws
// Error(bad_input) if there is none, or if it is not a report.
Evaluation open_evaluation(const std::string& path);
// Gives the evaluations short, distinct names: the parts of the paths in which they differ.
void name_evaluations(std::vector<Evaluation>& evaluations);

// A metric of a task for which both evaluations have the items' values.
struct PairedDifference {
  std::string task{}, metric{};
  int64_t items = 0;             // answered in both evaluations and identical in both
  double first = 0, second = 0;  // the metric over these items
  // second − first and its standard error, paired by items. For perplexities the error is to first order, of exp(−m₂) −
  // exp(−m₁), where m is the log-likelihood per word or byte. No error for a single item. Not finite if a perplexity
  // overflows.
  double difference = 0;
  std::optional<double> error{};
  bool higher_is_better = true;  // the metric
  // By how much the second is better, and its standard error: ln(first / second) for perplexities, otherwise
  // ±difference.
  double gain = 0;
  std::optional<double> gain_error{};
  int64_t wins = 0, losses = 0;  // items in which the second is better or worse
  double sign_test = 1;          // probability of wins and losses at least as uneven if both are equally good
};

struct Comparison {
  std::string first{}, second{};  // names
  ReportFile first_report{}, second_report{};
  std::vector<PairedDifference> differences{};  // tasks in the first's order
  // What cannot be compared: tasks and metrics that one evaluation lacks; items that differ or have no finite value, by
  // number.
  std::vector<std::string> faults{};
};

// Compares every other evaluation with the first. Throws Error(bad_input) if a file of samples is missing or malformed.
std::vector<Comparison> compare_evaluations(const std::vector<Evaluation>& evaluations);

// Two-sided probability of a split at least as uneven in wins + losses tosses of a fair coin.
double sign_test(int64_t wins, int64_t losses);

// A table in Markdown, followed by a drawing of each difference with twice its error on a common axis.
std::string to_text(const Comparison& comparison);
nlohmann::ordered_json to_json(const Comparison& comparison);

}  // namespace shiftron
