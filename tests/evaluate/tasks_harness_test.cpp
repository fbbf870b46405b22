// Our results compared with those of lm-evaluation-harness 0.4.13 for the same made-up items
// (tests/reference/lm_eval_tasks.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/file.h"
#include "evaluate/task_data.h"
#include "evaluate/tasks/metrics.h"
#include "evaluate/tasks/task.h"
#include "evaluate/tasks/task_hashes.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;
using testing::kTaskData;

// Datasets that we read in one form only.
const std::set<std::string> kHubAlone = {"math500", "wikitext", "piqa", "social_iqa", "sciq", "triviaqa"};

Json harness() {
  return Json::parse(read_file(kTaskData + "/harness.json"));
}

std::vector<Answer> answers_of(const Json& sample) {
  std::vector<Answer> answers;
  for (const Json& answer : sample.at("answers")) {
    if (answer.is_array()) answers.push_back({answer[0], answer[1]});
    if (answer.is_number()) answers.push_back({answer.get<double>()});
    if (answer.is_string()) answers.push_back({.text = answer});
  }
  return answers;
}

void expect_near(double ours, double theirs, const std::string& what) {
  EXPECT_NEAR(ours, theirs, 1e-12 * std::abs(theirs)) << what;
}

void expect_estimate(const Estimate& ours, const Json& results, const Metric& metric, const std::string& what) {
  expect_near(ours.value, results.at(metric.name + "," + metric.filter.name), what);
  const Json& error = results.at(metric.name + "_stderr," + metric.filter.name);
  ASSERT_EQ(ours.error.has_value(), error.is_number()) << what;
  if (ours.error) expect_near(*ours.error, error, what + " error");
}

struct Scored {
  LoadedTask task;
  std::vector<Estimate> estimates;  // one for each metric
};

class TasksAgainstHarness : public ::testing::TestWithParam<const char*> {
 protected:
  // Compares every item of the task, then its aggregated metrics.
  Scored check(const std::string& name, const Json& run) {
    Scored scored{registry_.load(name, kTaskData + "/" + GetParam(), {.fewshot = run.at("fewshot").get<int64_t>()}),
                  {}};
    const Json& theirs = run.at("samples").at(name);
    const std::string what = name + " " + run.at("fewshot").dump() + "-shot";
    const Json& samples = theirs.at("samples");
    EXPECT_EQ(scored.task.definition.version, run.at("versions").at(name).get<double>()) << what;
    const std::vector<Item>& items = scored.task.items;
    std::vector<std::string> filters;
    for (const Json& sample : samples) {
      const std::string filter = filter_of(sample);
      if (std::ranges::find(filters, filter) == filters.end()) filters.push_back(filter);
    }
    EXPECT_EQ(items.size() * filters.size(), samples.size()) << what;
    for (size_t i = 0; i < samples.size(); ++i)
      check_item(items.at(i % items.size()), samples[i], what + " item " + std::to_string(i));
    EXPECT_EQ(task_hash(items, filters.size()), theirs.at("task_hash")) << what;
    for (const Metric& metric : scored.task.definition.metrics) {
      const std::string of_metric = what + " " + name_with_filter(metric);
      const auto filter = std::ranges::find(filters, metric.filter.name);
      const bool is_theirs = filter != filters.end() && samples[0].at("values").contains(metric.name);
      const size_t first = is_theirs ? static_cast<size_t>(filter - filters.begin()) * items.size() : 0;
      std::vector<MetricValue> values;
      for (size_t i = 0; i < items.size(); ++i) {
        const Json& sample = samples[first + i];
        const std::vector<Answer> answers = answers_of(sample);
        values.push_back(score(metric, items[i], answers));
        if (is_theirs) check_value(values[i], sample.at("values").at(metric.name), of_metric + std::to_string(i));
        if (sample.contains("filtered")) {
          EXPECT_EQ(filtered_answer(metric.filter, answers[0].text), sample.at("filtered")[0]) << of_metric << i;
        }
      }
      scored.estimates.push_back(aggregate(metric.aggregation, values, harness_.at("bootstrap").get<int64_t>()));
      if (is_theirs) expect_estimate(scored.estimates.back(), run.at("results").at(name), metric, of_metric);
    }
    return scored;
  }

  static std::string filter_of(const Json& sample) { return sample.value("filter", AnswerFilter{}.name); }

  void check_item(const Item& item, const Json& sample, const std::string& what) {
    const Json& requests = sample.at("requests");
    ASSERT_EQ(item.requests.size(), requests.size()) << what;
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(item.requests[i].context, requests[i][0]) << what;
      if (requests[i][1].is_string()) {
        EXPECT_EQ(item.requests[i].continuation, requests[i][1]) << what;
      } else if (requests[i][1].is_array()) {
        EXPECT_EQ(Json(item.requests[i].generation.until), requests[i][1]) << what;
      }
    }
    const ItemHashes hashes = hashes_of(item);
    EXPECT_EQ(hashes.document, sample.at("doc_hash")) << what << item.document.dump();
    EXPECT_EQ(hashes.prompt, sample.at("prompt_hash")) << what;
    EXPECT_EQ(hashes.target, sample.at("target_hash")) << what << " target " << item.target;
  }

  void check_value(const MetricValue& ours, const Json& theirs, const std::string& what) {
    expect_near(ours.value, theirs.is_array() ? theirs[0] : theirs, what);
    if (theirs.is_array()) {
      EXPECT_EQ(ours.weight, theirs[1].get<double>()) << what;
    } else {
      EXPECT_EQ(ours.is_whole, theirs.is_number_integer()) << what;
    }
  }

  const Json harness_ = harness();
  TaskRegistry registry_;
};

TEST_P(TasksAgainstHarness, every_item_and_metric_is_theirs) {
  size_t tasks = 0;
  for (const Json& run : harness_.at("runs")) {
    for (const auto& item : run.at("samples").items()) {
      const std::string dataset = registry_.definition(item.key()).dataset;
      if (kHubAlone.contains(dataset) && GetParam() != std::string("hub")) continue;
      check(item.key(), run);
      ++tasks;
    }
  }
  EXPECT_GE(tasks, 43U);
}

TEST_P(TasksAgainstHarness, groups_are_theirs) {
  const Json& run = harness_.at("runs")[0];
  const std::pair<std::string, std::string> groups[] = {
      {"mmlu_here", "mmlu"}, {"cmmlu_here", "cmmlu"}, {"hendrycks_math_here", "hendrycks_math"}};
  for (const auto& [theirs, prefix] : groups) {
    std::vector<std::vector<GroupPart>> parts;  // of each metric
    std::vector<Metric> metrics;
    for (const auto& item : run.at("samples").items()) {
      if (!item.key().starts_with(prefix + "_") || item.key().ends_with("_continuation") ||
          item.key() == "hendrycks_math500")
        continue;
      const Scored scored = check(item.key(), run);
      metrics = scored.task.definition.metrics;
      parts.resize(metrics.size());
      for (size_t i = 0; i < metrics.size(); ++i) {
        parts[i].push_back({scored.estimates[i], static_cast<int64_t>(scored.task.items.size())});
      }
    }
    ASSERT_FALSE(metrics.empty()) << theirs;
    for (size_t i = 0; i < metrics.size(); ++i) {
      expect_estimate(aggregate_group(parts[i]), run.at("results").at(theirs), metrics[i], theirs);
    }
  }
}

// From the hub's columns and from the files as they were released.
INSTANTIATE_TEST_SUITE_P(Forms, TasksAgainstHarness, ::testing::Values("hub", "original"),
                         [](const auto& form) { return std::string(form.param); });

}  // namespace
}  // namespace shiftron
