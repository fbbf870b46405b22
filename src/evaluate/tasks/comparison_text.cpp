// Output of a comparison: a table, a drawing of the differences, JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/foreign_text.h"
#include "evaluate/tasks/benchmark_compare.h"
#include "evaluate/tasks/benchmark_report.h"
#include "evaluate/tasks/markdown_table.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

std::string file_text(const ReportFile& report) {
  return printable_line(report.path) + (report.among > 1 ? fmt::format(", the newest of {}", report.among) : "");
}

// Twice the error; 0 if unknown.
double reach_of(const PairedDifference& paired) {
  return 2 * paired.gain_error.value_or(0);
}

// A number with its sign.
std::string signed_text(double value) {
  return (value >= 0 ? "+" : "") + number_text(value);
}

// Draws a gain and twice its error between −most and most, with a mark at zero: "----|--o--".
std::string drawn(const PairedDifference& paired, double most) {
  constexpr int kHalf = 20;  // characters
  const auto place = [&](double value) {
    return kHalf + static_cast<int>(std::lround(std::clamp(value / most, -1.0, 1.0) * kHalf));
  };
  std::string line(2 * kHalf + 1, ' ');
  const int begin = place(paired.gain - reach_of(paired)), end = place(paired.gain + reach_of(paired));
  for (int i = begin; i <= end; ++i) line[static_cast<size_t>(i)] = '-';
  line[kHalf] = '|';
  line[static_cast<size_t>(place(paired.gain))] = 'o';
  return line;
}

}  // namespace

std::string to_text(const Comparison& comparison) {
  size_t width = 4, metric_width = 15;
  double most = 0;
  std::vector<std::vector<std::string>> cells = {
      {"task", "metric", "items", "first", "second", "difference", "± error", "wins/losses", "sign test"}};
  for (const PairedDifference& p : comparison.differences) {
    width = std::max(width, printable_line(p.task).size());
    metric_width = std::max(metric_width, printable_line(p.metric).size());
    most = std::max(most, std::abs(p.gain) + reach_of(p));
    cells.push_back({p.task, p.metric, std::to_string(p.items), number_text(p.first), number_text(p.second),
                     signed_text(p.difference), p.error ? number_text(*p.error) : "n/a",
                     fmt::format("{}/{}", p.wins, p.losses), fmt::format("{:.3g}", p.sign_test)});
  }
  std::string text = fmt::format("{} compared with {}\n  first: {}\n  second: {}\n\n",
                                 printable_line(comparison.second), printable_line(comparison.first),
                                 file_text(comparison.first_report), file_text(comparison.second_report)) +
                     markdown_table(cells, {2, 3, 4, 5, 6, 7, 8});
  if (most > 0) {
    text += fmt::format(
        "\no: how much better (right of |) or worse the second is, with twice the standard error; for perplexities, of "
        "their natural logarithms:\n\n"
        "{:{}}  {:<21}{:>20}\n",
        "", width + 2 + metric_width, fmt::format("{:+.3f}", -most), fmt::format("{:+.3f}", most));
    for (const PairedDifference& p : comparison.differences) {
      text += fmt::format("{:{}}  {:>{}}  {}\n", printable_line(p.task), width, printable_line(p.metric), metric_width,
                          drawn(p, most));
    }
  }
  for (const std::string& fault : comparison.faults) text += "\nnot compared: " + printable_line(fault) + "\n";
  return text;
}

Json to_json(const Comparison& comparison) {
  auto differences = Json::array();
  for (const PairedDifference& p : comparison.differences) {
    differences.push_back({{"task", p.task},
                           {"metric", p.metric},
                           {"first", p.first},
                           {"second", p.second},
                           {"items", p.items},
                           {"difference", p.difference},
                           {"error", p.error ? Json(*p.error) : Json(nullptr)},
                           {"higher_is_better", p.higher_is_better},
                           {"gain", p.gain},
                           {"gain_error", p.gain_error ? Json(*p.gain_error) : Json(nullptr)},
                           {"wins", p.wins},
                           {"losses", p.losses},
                           {"sign_test", p.sign_test}});
  }
  return {{"first", comparison.first},
          {"second", comparison.second},
          {"first_report", comparison.first_report.path},
          {"second_report", comparison.second_report.path},
          {"differences", differences},
          {"not_compared", comparison.faults}};
}

}  // namespace shiftron
