// Reads the samples of two evaluations and pairs their items.
#include "evaluate/tasks/benchmark_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "core/check.h"
#include "core/file.h"
#include "core/shell_word.h"
#include "evaluate/tasks/benchmark_report.h"
#include "evaluate/tasks/markdown_table.h"
#include "evaluate/tasks/metrics.h"
#include "evaluate/tasks/python_json.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kResults = "results_";
constexpr const char* kNoFilter = "none";
constexpr const char* kWritesSamples = "lm_eval writes samples with --log_samples";
constexpr uint64_t kLargestReport = uint64_t{1} << 32;  // bytes

Json parsed(const std::string& text, const std::string& where) {
  try {
    return python::parse_json(text);
  } catch (const Json::exception& error) {
    throw_bad_input(where, " is not JSON: ", error.what());
  }
}

bool is_report(const fs::path& path) {
  const std::string name = path.filename();
  return name.starts_with(kResults) && name.ends_with(".json");
}

std::string time_of(const Evaluation& evaluation) {
  const std::string stem = fs::path(evaluation.path).stem();
  return stem.substr(std::string(kResults).size());
}

// An item's value of a metric. For perplexities: a log-likelihood, and the words or bytes to divide it by.
struct Value {
  double value = 0;
  double weight = 1;
};

// The compared parts of one item.
struct Sample {
  std::string hash;                                    // of its document, its prompt and its target
  std::map<std::string, std::optional<Value>> values;  // by metric; unset: not finite
};

// How a metric's values are aggregated over a task, by its name with or without a filter; nothing if unknown.
std::optional<Aggregation> aggregation_of(const std::string& metric) {
  const std::vector<Metric> known = known_metrics();
  const auto found = std::ranges::find(known, metric.substr(0, metric.find(',')), &Metric::name);
  return found == known.end() ? std::nullopt : std::optional(found->aggregation);
}

// Pairs in other metrics are inputs that only the harness can aggregate: f1 and mcc of [gold, prediction].
std::optional<Value> value_of(const std::string& metric, const Json& value) {
  const std::optional<Aggregation> how = aggregation_of(metric);
  const bool weighted = (how == Aggregation::weighted_perplexity || how == Aggregation::bits) && value.is_array() &&
                        value.size() == 2 && value[1].is_number();
  const Json& number = weighted ? value[0] : value;
  if (!number.is_number() || !std::isfinite(number.get<double>())) return std::nullopt;
  return Value{number.get<double>(), weighted ? value[1].get<double>() : 1};
}

// The metric's name in reports. The harness writes one line per filter of answers: "exact_match,strict-match".
std::string filtered_name(const std::string& metric, const Json& sample) {
  const std::string filter = sample.value("filter", kNoFilter);
  return filter == kNoFilter ? metric : metric + "," + filter;
}

// False if a choice's log-likelihood, ["-1.5", "False"], is not finite. Then no metric of the item has a value.
bool has_answers(const Json& sample) {
  for (const Json& answer : sample.value("filtered_resps", Json::array())) {
    if (!answer.is_array() || answer.size() != 2 || !answer[0].is_string()) continue;
    if (!std::isfinite(std::strtod(answer[0].get<std::string>().c_str(), nullptr))) return false;
  }
  return true;
}

std::map<int64_t, Sample> read_samples(const Evaluation& evaluation, const std::string& task) {
  const std::string path = fs::path(evaluation.path).parent_path() /
                           ("samples_" + sanitized_model_name(task) + "_" + time_of(evaluation) + ".jsonl");
  if (!fs::exists(path)) {
    throw_bad_input(path, " is missing, but the comparison of items needs it (", kWritesSamples, ")");
  }
  std::istringstream lines(read_file(path, kLargestReport));
  std::map<int64_t, Sample> samples;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = path + ":" + std::to_string(++number);
    const Json json = parsed(line, where);
    try {
      Sample& sample = samples[json.at("doc_id").get<int64_t>()];
      sample.hash.clear();  // the same in all lines of an item
      for (const char* hash : {"doc_hash", "prompt_hash", "target_hash"})
        sample.hash += json.at(hash).get<std::string>();
      const bool answered = has_answers(json);
      for (const auto& metric : json.at("metrics")) {
        const auto name = metric.get<std::string>();
        sample.values[filtered_name(name, json)] = answered ? value_of(name, json.at(name)) : std::nullopt;
      }
    } catch (const Json::exception& error) {
      throw_bad_input(where, " is not a sample of the harness: ", error.what());
    }
  }
  return samples;
}

std::string listed(const std::vector<int64_t>& numbers) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(numbers.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  }
  return numbers.size() > kMost ? text + " and " + std::to_string(numbers.size() - kMost) + " more" : text;
}

// An item's values in both evaluations, and the words or bytes to divide them by; 1 for a mean.
struct PairedValues {
  double first = 0, second = 0, weight = 1;
};

// A metric as a function of m = Σ values / Σ weights, and its slope at m.
struct Curve {
  double value = 0, slope = 1;
};

Curve curve_at(Aggregation how, double m) {
  switch (how) {
    case Aggregation::mean:
      return {m, 1};
    case Aggregation::perplexity:
    case Aggregation::weighted_perplexity:
      return {std::exp(-m), -std::exp(-m)};
    case Aggregation::bits:
      return {-m / std::log(2.0), -1 / std::log(2.0)};
  }
  CHECK(false, "an aggregation without a curve");
}

// Standard error of s₂·m₂ − s₁·m₁, as for a ratio: √(n/(n−1)·Σe²) / Σw with e = s₂·(v₂ − m₂·w) − s₁·(v₁ − m₁·w).
std::optional<double> paired_error(const std::vector<PairedValues>& pairs, double m1, double m2, double s1, double s2) {
  if (pairs.size() < 2) return std::nullopt;
  double weights = 0, squares = 0;
  for (const auto& [first, second, weight] : pairs) {
    weights += weight;
    squares += std::pow(s2 * (second - m2 * weight) - s1 * (first - m1 * weight), 2);
  }
  const auto count = static_cast<double>(pairs.size());
  return std::sqrt(squares * count / (count - 1)) / weights;
}

// Computes values, difference and gain of the pairs. False if the sum of weights is zero.
bool summarize(const std::vector<PairedValues>& pairs, Aggregation how, PairedDifference& paired) {
  double first = 0, second = 0, weights = 0;
  int64_t higher = 0, lower = 0;
  for (const PairedValues& pair : pairs) {
    first += pair.first;
    second += pair.second;
    weights += pair.weight;
    higher += pair.second > pair.first ? 1 : 0;
    lower += pair.second < pair.first ? 1 : 0;
  }
  if (!(weights > 0)) return false;
  const double m1 = first / weights, m2 = second / weights;
  const Curve ours = curve_at(how, m1), theirs = curve_at(how, m2);
  paired.items = static_cast<int64_t>(pairs.size());
  paired.first = ours.value;
  paired.second = theirs.value;
  paired.difference = theirs.value - ours.value;
  paired.error = paired_error(pairs, m1, m2, ours.slope, theirs.slope);
  // For perplexities and bits, items' values are log-likelihoods: higher is better.
  const bool upward = how != Aggregation::mean || paired.higher_is_better;
  const double scale = how == Aggregation::bits ? 1 / std::log(2.0) : upward ? 1 : -1;
  paired.gain = scale * (m2 - m1);
  paired.gain_error = paired_error(pairs, m1, m2, scale, scale);
  paired.wins = upward ? higher : lower;
  paired.losses = upward ? lower : higher;
  paired.sign_test = sign_test(paired.wins, paired.losses);
  return true;
}

class Comparer {
 public:
  Comparer(const Evaluation& first, const Evaluation& second) : first_(first), second_(second) {
    comparison_.first = first.name;
    comparison_.second = second.name;
    comparison_.first_report = first;
    comparison_.second_report = second;
  }

  Comparison compare() {
    const Json &ours = hashes_of(first_), &theirs = hashes_of(second_);
    for (const auto& [task, hash] : ours.items()) {
      if (!theirs.contains(task)) {
        fault(task + " was not evaluated by " + second_.name);
      } else {
        compare_task(task, hash == theirs[task]);
      }
    }
    for (const auto& [task, hash] : theirs.items()) {
      if (!ours.contains(task)) fault(task + " was not evaluated by " + first_.name);
    }
    return std::move(comparison_);
  }

 private:
  static const Json& hashes_of(const Evaluation& evaluation) { return evaluation.results.at("task_hashes"); }

  void fault(const std::string& text) { comparison_.faults.push_back(text); }

  void compare_task(const std::string& task, bool same) {
    const auto ours = read_samples(first_, task), theirs = read_samples(second_, task);
    std::vector<int64_t> common, differ, alone;
    for (const auto& [number, sample] : ours) {
      const auto other = theirs.find(number);
      (other == theirs.end() ? alone : other->second.hash == sample.hash ? common : differ).push_back(number);
    }
    for (const auto& [number, sample] : theirs) {
      if (!ours.contains(number)) alone.push_back(number);
    }
    std::ranges::sort(alone);
    if (!differ.empty()) fault(task + ": item " + listed(differ) + " differ in text, prompt or target: skipped");
    if (!alone.empty()) fault(task + ": item " + listed(alone) + " are in only one evaluation: skipped");
    if (same && !(differ.empty() && alone.empty()))
      fault(task + ": the task's hash is the same, so a file was changed after its evaluation");
    if (common.empty()) return;
    const std::set<std::string> of_ours = metrics_of(ours), of_theirs = metrics_of(theirs);
    for (const std::string& metric : of_ours) {
      if (of_theirs.contains(metric)) {
        add(task, metric, common, ours, theirs);
      } else {
        fault(task + ": " + metric + " exists only in " + first_.name);
      }
    }
    for (const std::string& metric : of_theirs) {
      if (!of_ours.contains(metric)) fault(task + ": " + metric + " exists only in " + second_.name);
    }
  }

  static std::set<std::string> metrics_of(const std::map<int64_t, Sample>& samples) {
    std::set<std::string> metrics;
    for (const auto& [number, sample] : samples) {
      for (const auto& [metric, value] : sample.values) metrics.insert(metric);
    }
    return metrics;
  }

  // As in the first report that says so; perplexities and bits are better if lower.
  bool higher_is_better(const std::string& task, const std::string& metric) const {
    const std::optional<Aggregation> how = aggregation_of(metric);
    if (how && how != Aggregation::mean) return false;
    for (const Evaluation* evaluation : {&first_, &second_}) {
      const Json of_task = object_in(object_in(evaluation->results, "higher_is_better"), task);
      const auto found = of_task.find(metric.substr(0, metric.find(',')));
      if (found != of_task.end() && found->is_boolean()) return found->get<bool>();
    }
    return true;
  }

  // The object at `key`; an empty object if there is none.
  static Json object_in(const Json& object, const std::string& key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_object() ? *found : Json::object();
  }

  void add(const std::string& task, const std::string& metric, const std::vector<int64_t>& common,
           const std::map<int64_t, Sample>& ours, const std::map<int64_t, Sample>& theirs) {
    PairedDifference paired{.task = task, .metric = metric, .higher_is_better = higher_is_better(task, metric)};
    std::vector<PairedValues> pairs;
    std::vector<int64_t> without, differ;
    for (const int64_t number : common) {
      const std::optional<Value> own = value_in(ours.at(number), metric), other = value_in(theirs.at(number), metric);
      if (!own || !other) {
        without.push_back(number);
      } else if (own->weight != other->weight) {
        differ.push_back(number);
      } else {
        pairs.push_back({own->value, other->value, own->weight});
      }
    }
    const std::string where = task + ", " + metric + ": item ";
    if (!without.empty()) fault(where + listed(without) + " are not finite in one evaluation: skipped");
    if (!differ.empty()) fault(where + listed(differ) + " differ in the number of words or bytes: skipped");
    if (!summarize(pairs, aggregation_of(metric).value_or(Aggregation::mean), paired)) return;
    comparison_.differences.push_back(paired);
  }

  static std::optional<Value> value_in(const Sample& sample, const std::string& metric) {
    const auto found = sample.values.find(metric);
    return found == sample.values.end() ? std::nullopt : found->second;
  }

  const Evaluation &first_, &second_;
  Comparison comparison_;
};

}  // namespace

Evaluation open_evaluation(const std::string& path) {
  Evaluation evaluation;
  if (fs::is_directory(path)) {
    evaluation.among = 0;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (!entry.is_regular_file() || !is_report(entry.path())) continue;
      ++evaluation.among;
      if (evaluation.path.empty() || entry.path().filename().string() > fs::path(evaluation.path).filename().string()) {
        evaluation.path = entry.path();
      }
    }
    if (evaluation.path.empty()) {
      throw_bad_input(path, " contains no ", kResults, "*.json; to make one: shiftron evaluate --tasks … --output ",
                      shell_word(path));
    }
  } else {
    if (!fs::exists(path))
      throw_bad_input(path, " does not exist; give a results file or a directory that contains one");
    if (!is_report(path)) throw_bad_input(path, " is not a ", kResults, "*.json");
    evaluation.path = path;
  }
  evaluation.results = parsed(read_file(evaluation.path, kLargestReport), evaluation.path);
  for (const char* key : {"results", "task_hashes"}) {
    if (!evaluation.results.is_object() || !evaluation.results.contains(key) || !evaluation.results[key].is_object()) {
      throw_bad_input(evaluation.path, " lacks \"", key, "\": it is not a report of an evaluation that wrote samples");
    }
  }
  if (evaluation.results["task_hashes"].empty()) {
    throw_bad_input(evaluation.path, " names no samples, but the comparison of items needs them (", kWritesSamples,
                    ")");
  }
  evaluation.name = path;
  return evaluation;
}

void name_evaluations(std::vector<Evaluation>& evaluations) {
  std::vector<std::vector<std::string>> parts;
  for (const Evaluation& evaluation : evaluations) {
    auto& own = parts.emplace_back();
    for (const fs::path& part : fs::path(evaluation.name).lexically_normal()) {
      if (!part.empty()) own.push_back(part);
    }
  }
  const auto all_have = [&](bool front) {
    return std::ranges::all_of(parts, [&](const auto& own) {
      return own.size() > 1 && (front ? own.front() == parts[0].front() : own.back() == parts[0].back());
    });
  };
  while (parts.size() > 1 && all_have(true)) {
    for (auto& own : parts) own.erase(own.begin());
  }
  while (parts.size() > 1 && all_have(false)) {
    for (auto& own : parts) own.pop_back();
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    fs::path name;
    for (const std::string& part : parts[i]) name /= part;
    evaluations[i].name = name;
  }
}

std::vector<Comparison> compare_evaluations(const std::vector<Evaluation>& evaluations) {
  std::vector<Comparison> comparisons;
  for (size_t i = 1; i < evaluations.size(); ++i) {
    comparisons.push_back(Comparer(evaluations[0], evaluations[i]).compare());
  }
  return comparisons;
}

double sign_test(int64_t wins, int64_t losses) {
  const int64_t throws = wins + losses, fewer = std::min(wins, losses);
  if (2 * fewer == throws) return 1;
  const auto log_choose = [&](int64_t k) {
    return std::lgamma(static_cast<double>(throws + 1)) - std::lgamma(static_cast<double>(k + 1)) -
           std::lgamma(static_cast<double>(throws - k + 1));
  };
  double sum = 0;
  for (int64_t k = 0; k <= fewer; ++k) sum += std::exp(log_choose(k) - static_cast<double>(throws) * std::log(2.0));
  return std::min(1.0, 2 * sum);
}

}  // namespace shiftron
