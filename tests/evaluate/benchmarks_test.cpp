// A whole pass over benchmark tasks, from files to reports, in many layouts.
#include "evaluate/benchmarks.h"

#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "config/validate.h"
#include "evaluate/saved_model.h"
#include "evaluate/task_data.h"

namespace shiftron::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Every kind of request, Chinese, and windows of a text that is longer than what is read at once.
const std::vector<std::string> kTasks = {"hellaswag",      "winogrande",     "arc_easy", "mmlu_philosophy_continuation",
                                         "cmmlu_agronomy", "lambada_openai", "wikitext", "hendrycks_math_algebra"};

struct Report {
  std::map<std::string, Json> samples{};  // of each task
  Json hashes;
  std::vector<ResultRow> rows;
};

Report report_of(const CheckpointModel& model, int ranks, const std::string& output) {
  const BenchmarkOptions options{.tasks = kTasks,
                                 .data = kTaskData + "/hub",
                                 .output = output,
                                 .task = {.limit = 2, .most_tokens = 4},
                                 .scorer = {.max_length = 192, .token_budget = 256}};
  BenchmarkOutcome outcome;
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    const BenchmarkOutcome own = run_benchmarks(model, options, "a test", world, {});
    EXPECT_EQ(own.rows.empty(), world.rank() != 0);
    if (world.rank() == 0) outcome = own;
  });
  Report report{.samples = {},
                .hashes = Json::parse(Scratch::read(outcome.results_path)).at("task_hashes"),
                .rows = outcome.rows};
  for (const auto& entry : fs::directory_iterator(fs::path(outcome.results_path).parent_path())) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("samples_")) continue;
    std::istringstream lines(Scratch::read(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      report.samples[name.substr(0, name.find("_20"))].push_back(Json::parse(line));
    }
  }
  return report;
}

// Sums of up to 192 terms in another order, each rounded to 1.1e-16, through four layers and into sums over a row.
void expect_near(double found, double expected, const std::string& what) {
  EXPECT_NEAR(found, expected, 1e-12 * std::max(1.0, std::abs(expected))) << what;
}

// Whether a text is a number as a whole, as log-likelihoods stand in samples.
bool is_number(const std::string& text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

void expect_same(const Json& found, const Json& expected, const std::string& what) {
  ASSERT_EQ(found.type_name(), std::string(expected.type_name())) << what;
  ASSERT_EQ(found.size(), expected.size()) << what;
  double mine = 0, other = 0;
  if (expected.is_structured()) {
    for (auto one = found.items().begin(), same = expected.items().begin(); same != expected.items().end();
         ++one, ++same) {
      ASSERT_EQ(one.key(), same.key()) << what;
      expect_same(one.value(), same.value(), what + " " + same.key());
    }
  } else if (expected.is_number_float()) {
    expect_near(found, expected, what);
  } else if (expected.is_string() && is_number(expected, other) && is_number(found, mine)) {
    expect_near(mine, other, what);
  } else {
    EXPECT_EQ(found, expected) << what;
  }
}

void expect_same(const Report& found, const Report& expected, const std::string& what) {
  EXPECT_EQ(found.hashes, expected.hashes) << what;
  ASSERT_EQ(found.samples.size(), expected.samples.size()) << what;
  for (const auto& [task, samples] : expected.samples) expect_same(found.samples.at(task), samples, what + " " + task);
  ASSERT_EQ(found.rows.size(), expected.rows.size()) << what;
  for (size_t i = 0; i < expected.rows.size(); ++i) {
    const ResultRow &row = found.rows[i], &same = expected.rows[i];
    EXPECT_EQ(row.name + " " + row.metric, same.name + " " + same.metric) << what;
    EXPECT_EQ(row.items, same.items) << what;
    expect_near(row.estimate.value, same.estimate.value, what + " " + row.name);
    ASSERT_EQ(row.estimate.error.has_value(), same.estimate.error.has_value()) << what;
    if (same.estimate.error) expect_near(*row.estimate.error, *same.estimate.error, what + " " + row.name);
  }
}

struct NamedLayout {
  std::string name;
  int ranks;
  ParallelSection parallel;
};

// Under tp every rank also has its part of the vocabulary and, between products, of the rows.
std::vector<NamedLayout> named_layouts() {
  using enum PipelineKind;
  return {{"dp2", 2, {}},
          {"dp3, divided optimizer", 3, {.zero = 1}},
          {"tp2", 2, {.tp = 2}},
          {"tp4, more ranks than KV heads", 4, {.tp = 4}},
          {"pp2, uneven", 2, {.pp = 2, .stage_layers = {1, 3}}},
          {"pp4", 4, {.pp = 4}},
          {"pp2, gpipe", 2, {.pp = 2, .pipeline = gpipe}},
          {"pp2, virtual stages", 2, {.pp = 2, .chunks = 2, .pipeline = interleaved}},
          {"pp2, zb-h1", 2, {.pp = 2, .pipeline = zb_h1}},
          {"pp2, zb-v", 2, {.pp = 2, .chunks = 2, .pipeline = zb_v}},
          {"tp2 pp2", 4, {.tp = 2, .pp = 2}},
          {"tp2 dp2, divided optimizer", 4, {.tp = 2, .zero = 1}},
          {"pp2 dp2", 4, {.pp = 2}},
          {"tp2 pp2 dp2, virtual stages", 8, {.tp = 2, .pp = 2, .chunks = 2, .zero = 1, .pipeline = interleaved}},
          {"tp2 pp2, zb-v", 4, {.tp = 2, .pp = 2, .chunks = 2, .pipeline = zb_v}},
          {"tp4 pp2", 8, {.tp = 4, .pp = 2}}};
}

TEST(Benchmarks, ReportsAreAlikeInEveryLayout) {
  const Scratch scratch;
  RunConfig config = model_config();
  config.model.layers = 4;
  CheckpointModel model = saved_model(scratch, config);
  const Report expected = report_of(model, 1, scratch / "alone");
  ASSERT_EQ(expected.samples.size(), kTasks.size());
  for (const NamedLayout& layout : named_layouts()) {
    model.config.parallel = layout.parallel;
    EXPECT_EQ(find_faults(model.config, layout.ranks, Use::evaluate), std::vector<std::string>()) << layout.name;
    expect_same(report_of(model, layout.ranks, scratch / layout.name), expected, layout.name);
  }
}

// Each evaluation of a model has its own journal, which is removed after its report; another's stays in the same
// folder.
TEST(Benchmarks, JournalsOfOtherQuestionsStay) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  const fs::path journals = scratch / "report/journal";
  const auto names_during = [&](const CheckpointModel& asked, const std::string& task) {
    std::set<std::string> names;
    BenchmarkOptions options{
        .tasks = {task}, .data = kTaskData + "/hub", .output = scratch / "report", .task = {.limit = 2}};
    options.scorer.max_length = 192;
    options.scorer.each_batch = [&] {
      for (const auto& entry : fs::directory_iterator(journals)) names.insert(entry.path().filename());
    };
    const auto world = make_single_world();
    run_benchmarks(asked, options, "a test", *world, {});
    return names;
  };
  const auto winogrande = names_during(model, "winogrande");
  ASSERT_EQ(winogrande.size(), 1);
  EXPECT_FALSE(fs::exists(journals));
  EXPECT_EQ(names_during(model, "winogrande"), winogrande);
  EXPECT_NE(names_during(model, "hellaswag"), winogrande);
  fs::create_directories(journals / *winogrande.begin());
  scratch.write("report/journal/" + *winogrande.begin() + "/answers-0.txt", "kept");
  names_during(model, "hellaswag");
  EXPECT_EQ(Scratch::read(journals / *winogrande.begin() / "answers-0.txt"), "kept");
  names_during(model, "winogrande");
  EXPECT_FALSE(fs::exists(journals));
}

}  // namespace
}  // namespace shiftron::testing
