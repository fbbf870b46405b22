// Reading samples of two evaluations, pairing their items, and drawing what differs.
#include "evaluate/tasks/benchmark_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "core/check.h"
#include "core/file.h"
#include "evaluate/tasks/benchmark_report.h"
#include "evaluate/tasks/markdown_table.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kResults = "results_";
constexpr uint64_t kLargestReport = uint64_t{1} << 32;  // bytes

Json parsed(const std::string& text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw_bad_input(where, " is no JSON: ", error.what());
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

// What is compared of one item.
struct Sample {
  std::string hash;                      // of its document, its prompt and its target
  std::map<std::string, double> values;  // of metrics; higher is better
};

// A rolling metric's value is a pair: a log-likelihood, and what it is divided by.
std::optional<double> number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_array() || value.size() != 2 || !value[0].is_number() || !value[1].is_number()) return std::nullopt;
  const auto weight = value[1].get<double>();
  return weight == 0 ? 0 : value[0].get<double>() / weight;
}

std::map<int64_t, Sample> read_samples(const Evaluation& evaluation, const std::string& task) {
  const std::string path = fs::path(evaluation.path).parent_path() /
                           ("samples_" + sanitized_model_name(task) + "_" + time_of(evaluation) + ".jsonl");
  if (!fs::exists(path)) {
    throw_bad_input(path, " is missing: items are compared by it (lm_eval writes it with --log_samples)");
  }
  std::istringstream lines(read_file(path, kLargestReport));
  std::map<int64_t, Sample> samples;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = path + ":" + std::to_string(++number);
    const Json json = parsed(line, where);
    try {
      Sample& sample = samples[json.at("doc_id").get<int64_t>()];
      for (const char* hash : {"doc_hash", "prompt_hash", "target_hash"})
        sample.hash += json.at(hash).get<std::string>();
      for (const auto& metric : json.at("metrics")) {
        const auto name = metric.get<std::string>();
        if (const auto value = number_of(json.at(name))) sample.values[name] = *value;
      }
    } catch (const Json::exception& error) {
      throw_bad_input(where, " is no sample of the harness: ", error.what());
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

class Comparer {
 public:
  Comparer(const Evaluation& first, const Evaluation& second) : first_(first), second_(second) {
    comparison_.first = first.name;
    comparison_.second = second.name;
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
    if (!differ.empty()) fault(task + ": item " + listed(differ) + " differ in text, prompt or target: left out");
    if (!alone.empty()) fault(task + ": item " + listed(alone) + " stand in one evaluation alone: left out");
    if (same && !(differ.empty() && alone.empty()))
      fault(task + ": the task's hash is the same: a file was changed behind its evaluation");
    if (common.empty()) return;
    for (const auto& [metric, value] : ours.at(common.front()).values) add(task, metric, common, ours, theirs);
  }

  double reported(const Evaluation& evaluation, const std::string& task, const std::string& metric) const {
    const Json& results = evaluation.results.at("results");
    const std::string key = metric + ",none";
    if (!results.contains(task) || !results[task].contains(key) || !results[task][key].is_number()) return std::nan("");
    return results[task][key].get<double>();
  }

  void add(const std::string& task, const std::string& metric, const std::vector<int64_t>& common,
           const std::map<int64_t, Sample>& ours, const std::map<int64_t, Sample>& theirs) {
    PairedDifference paired{.task = task,
                            .metric = metric,
                            .first = reported(first_, task, metric),
                            .second = reported(second_, task, metric)};
    std::vector<double> differences;
    for (const int64_t number : common) {
      const auto other = theirs.at(number).values.find(metric);
      const auto own = ours.at(number).values.find(metric);
      if (own == ours.at(number).values.end() || other == theirs.at(number).values.end()) continue;
      differences.push_back(other->second - own->second);
      paired.wins += differences.back() > 0 ? 1 : 0;
      paired.losses += differences.back() < 0 ? 1 : 0;
    }
    if (differences.empty()) return;
    const auto count = static_cast<double>(differences.size());
    double sum = 0, squares = 0;
    for (const double difference : differences) sum += difference;
    paired.difference = sum / count;
    for (const double difference : differences) squares += std::pow(difference - paired.difference, 2);
    paired.items = static_cast<int64_t>(differences.size());
    if (differences.size() > 1) paired.error = std::sqrt(squares / (count - 1) / count);
    paired.sign_test = sign_test(paired.wins, paired.losses);
    comparison_.differences.push_back(paired);
  }

  const Evaluation &first_, &second_;
  Comparison comparison_;
};

// "|----o----|" of a difference and twice its error between −most and most, with a mark at zero.
std::string drawn(const PairedDifference& paired, double most) {
  constexpr int kHalf = 20;  // characters
  const auto place = [&](double value) {
    return kHalf + static_cast<int>(std::lround(std::clamp(value / most, -1.0, 1.0) * kHalf));
  };
  std::string line(2 * kHalf + 1, ' ');
  const int begin = place(paired.difference - 2 * paired.error), end = place(paired.difference + 2 * paired.error);
  for (int i = begin; i <= end; ++i) line[static_cast<size_t>(i)] = '-';
  line[kHalf] = '|';
  line[static_cast<size_t>(place(paired.difference))] = 'o';
  return line;
}

}  // namespace

Evaluation open_evaluation(const std::string& path) {
  Evaluation evaluation;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (!entry.is_regular_file() || !is_report(entry.path())) continue;
      if (evaluation.path.empty() || entry.path().filename().string() > fs::path(evaluation.path).filename().string()) {
        evaluation.path = entry.path();
      }
    }
    if (evaluation.path.empty()) {
      throw_bad_input(path, " holds no ", kResults, "*.json; make one: shiftron evaluate --tasks … --output ", path);
    }
  } else {
    if (!fs::exists(path)) throw_bad_input(path, " does not exist; name a directory or a file of results");
    if (!is_report(path)) throw_bad_input(path, " is no ", kResults, "*.json");
    evaluation.path = path;
  }
  evaluation.results = parsed(read_file(evaluation.path, kLargestReport), evaluation.path);
  for (const char* key : {"results", "task_hashes"}) {
    if (!evaluation.results.is_object() || !evaluation.results.contains(key) || !evaluation.results[key].is_object()) {
      throw_bad_input(evaluation.path, " lacks \"", key,
                      "\": it is no report of an evaluation whose samples were written");
    }
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

std::string to_text(const Comparison& comparison) {
  size_t width = 4;
  double most = 0;
  std::vector<std::vector<std::string>> cells = {
      {"task", "metric", "items", "first", "second", "difference", "± error", "wins/losses", "sign test"}};
  for (const PairedDifference& p : comparison.differences) {
    width = std::max(width, p.task.size());
    most = std::max(most, std::abs(p.difference) + 2 * p.error);
    cells.push_back({p.task, p.metric, std::to_string(p.items), fmt::format("{:.4f}", p.first),
                     fmt::format("{:.4f}", p.second), fmt::format("{:+.4f}", p.difference),
                     fmt::format("{:.4f}", p.error), fmt::format("{}/{}", p.wins, p.losses),
                     fmt::format("{:.3g}", p.sign_test)});
  }
  std::string text = fmt::format("{} against {}\n\n", comparison.second, comparison.first) +
                     markdown_table(cells, {2, 3, 4, 5, 6, 7, 8});
  if (most > 0) {
    text += fmt::format(
        "\nDifference by items, o, and twice its error; right of | the second is better:\n\n"
        "{:{}}                   {:<21}{:>20}\n",
        "", width, fmt::format("{:+.3f}", -most), fmt::format("{:+.3f}", most));
    for (const PairedDifference& p : comparison.differences) {
      text += fmt::format("{:{}}  {:>15}  {}\n", p.task, width, p.metric, drawn(p, most));
    }
  }
  for (const std::string& fault : comparison.faults) text += "\nnot compared: " + fault + "\n";
  return text;
}

Json to_json(const Comparison& comparison) {
  Json differences = Json::array();
  for (const PairedDifference& p : comparison.differences) {
    differences.push_back({{"task", p.task},
                           {"metric", p.metric},
                           {"first", p.first},
                           {"second", p.second},
                           {"items", p.items},
                           {"difference", p.difference},
                           {"error", p.error},
                           {"wins", p.wins},
                           {"losses", p.losses},
                           {"sign_test", p.sign_test}});
  }
  return {{"first", comparison.first},
          {"second", comparison.second},
          {"differences", differences},
          {"not_compared", comparison.faults}};
}

}  // namespace shiftron
