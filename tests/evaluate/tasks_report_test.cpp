// Reports in the harness's schema, and what a comparison of two of them says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/check.h"
#include "core/file.h"
#include "evaluate/tasks/benchmark_compare.h"
#include "evaluate/tasks/benchmark_report.h"
#include "evaluate/tasks/task_hashes.h"
#include "expect_error.h"
#include "scratch.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Two choices an item, the first of which is right; "acc" alone.
AnsweredTask task_of(const std::string& name, const std::vector<bool>& right) {
  AnsweredTask entry;
  entry.task.name = name;
  entry.task.definition.name = name;
  entry.task.definition.metrics = {{"acc", ItemScore::likeliest, Aggregation::mean, true}};
  entry.task.original_items = static_cast<int64_t>(right.size()) + 1;
  for (size_t i = 0; i < right.size(); ++i) {
    Item item;
    item.number = static_cast<int64_t>(i);
    item.document = {{"question", name + std::to_string(i)}};
    item.target = "0";
    item.gold = 0;
    item.choices = {"yes", "no"};
    for (const std::string& choice : item.choices) {
      item.requests.push_back({.kind = RequestKind::log_likelihood, .context = "Q:", .continuation = " " + choice});
    }
    entry.task.items.push_back(item);
    entry.answers.push_back({.log_likelihood = -1.5, .greedy = right[i]});
    entry.answers.push_back({.log_likelihood = right[i] ? -2.25 : -0.1});
  }
  return entry;
}

Selection selection_of(const std::vector<AnsweredTask>& tasks) {
  Selection selection;
  for (const AnsweredTask& entry : tasks) selection.tasks.push_back(entry.task.name);
  return selection;
}

ReportFacts facts_at(const std::string& time) {
  return {.model_name = "runs/a:b",
          .max_length = 64,
          .end_of_document = "</s>",
          .end_of_document_id = 2,
          .code_version = "c",
          .began = 1767225600.5,
          .seconds = 1.5,
          .time = time};
}

TEST(BenchmarkReport, GroupsArePooledOverAllItemsAndTellTheMeanOfTasksBesides) {
  std::vector<AnsweredTask> tasks = {task_of("a", {true, false}), task_of("b", {true, true, true, false})};
  Selection selection = selection_of(tasks);
  selection.groups = {
      {{.name = "all", .version = "2", .members = {"part", "a"}, .metrics = {"acc"}}, {"part"}, {"b", "a"}},
      {{.name = "part", .version = "2", .members = {"b"}, .metrics = {"acc"}}, {}, {"b"}}};
  const BenchmarkReport report(selection, tasks);
  std::vector<std::string> names;
  for (const ResultRow& row : report.rows())
    names.push_back(std::string(static_cast<size_t>(row.depth), '-') + row.name);
  EXPECT_THAT(names, ElementsAre("all", "-part", "--b", "-a"));
  const Json json = report.results(facts_at("t"));
  EXPECT_NEAR(json["results"]["all"]["acc,none"].get<double>(), 4.0 / 6, 1e-15);
  EXPECT_NEAR(json["results"]["all"]["acc_macro,none"].get<double>(), (0.5 + 0.75) / 2, 1e-15);
  // The harness's value for these leaves, [1, 0] and [1, 1, 1, 0].
  EXPECT_NEAR(json["groups"]["all"]["acc_stderr,none"].get<double>(), 0.228217732, 1e-9);
  EXPECT_EQ(json["results"]["all"]["sample_count"]["acc,none"], 6);
  EXPECT_EQ(json["groups"]["all"]["sample_len"], 6);
  EXPECT_EQ(json["group_subtasks"]["all"], Json::array({"part"}));
  EXPECT_FALSE(json["n-shot"].contains("all")) << "a group of groups has none there";
  EXPECT_TRUE(json["n-shot"].contains("part"));
  EXPECT_EQ(json["n-samples"]["a"], (Json{{"original", 3}, {"effective", 2}}));
  EXPECT_EQ(json["task_hashes"]["a"], task_hash(tasks[0].task.items));
  EXPECT_EQ(json["tokenizer_eos_token"], Json::array({"</s>", "2"}));
  EXPECT_EQ(json["tokenizer_bos_token"].dump(), R"([null,"None"])");
  EXPECT_EQ(json["date"].dump(), "1767225600.5");
  EXPECT_EQ(json["total_evaluation_time_seconds"], "1.500");
  const std::string table = results_table(report.rows());
  EXPECT_THAT(table, HasSubstr("|   - b  "));
  EXPECT_THAT(table, HasSubstr("0.6667"));
}

TEST(BenchmarkReport, ASampleHoldsNumbersAsTheHarnessWritesThem) {
  const BenchmarkReport report(Selection{.tasks = {"a"}}, {task_of("a", {true})});
  const std::string lines = report.samples(0);
  const Json sample = Json::parse(lines);
  EXPECT_EQ(sample["resps"].dump(), R"([[["-1.5","True"]],[["-2.25","False"]]])");
  EXPECT_EQ(sample["filtered_resps"].dump(), R"([["-1.5","True"],["-2.25","False"]])");
  EXPECT_EQ(sample["arguments"]["gen_args_1"].dump(), R"({"arg_0":"Q:","arg_1":" no"})");
  EXPECT_EQ(sample["acc"].dump(), "1.0");
  EXPECT_EQ(sample["metrics"].dump(), R"(["acc"])");
}

TEST(BenchmarkReport, ATextThatEndsWithinACharacterIsWritten) {
  AnsweredTask entry = task_of("a", {true});
  entry.task.definition.metrics.clear();
  Request& request = entry.task.items[0].requests.emplace_back();
  request.kind = RequestKind::generate;
  entry.answers.push_back({.text = "caf\xc3"});
  const BenchmarkReport report(Selection{.tasks = {"a"}}, {entry});
  EXPECT_EQ(Json::parse(report.samples(0))["filtered_resps"][2], "caf\xef\xbf\xbd");
}

TEST(BenchmarkReport, ASampleShowsTheLimitOfAnAnswerOnlyWhereItWasAskedFor) {
  for (const bool states : {false, true}) {
    AnsweredTask entry = task_of("a", {true});
    entry.task.definition.metrics = {{"exact_match", ItemScore::same_text, Aggregation::mean, true}};
    entry.task.items[0].requests = {
        {.kind = RequestKind::generate, .context = "Q:", .generation = {{"\n"}, 9, states}}};
    entry.answers = {{.text = "yes"}};
    const Json sample = Json::parse(BenchmarkReport(Selection{.tasks = {"a"}}, {entry}).samples(0));
    const std::string asked = R"({"until":["\n"],"do_sample":false,"temperature":0.0)";
    EXPECT_EQ(sample["resps"].dump() + sample["filtered_resps"].dump(), R"([["yes"]]["yes"])");
    EXPECT_EQ(sample["arguments"]["gen_args_0"]["arg_1"].dump(), asked + (states ? R"(,"max_gen_toks":9})" : "}"));
  }
}

TEST(BenchmarkReport, EachFilterHasItsLinesAndItsValue) {
  AnsweredTask entry = task_of("a", {true, true});
  entry.task.definition.kind = TaskKind::generate;
  entry.task.definition.metrics.clear();
  for (const bool last : {false, true}) {
    entry.task.definition.metrics.push_back(
        {.name = "exact_match",
         .scorer = ItemScore::same_text,
         .filter = {.name = last ? "last" : "first", .extract = "[0-9]+", .last = last}});
  }
  for (Item& item : entry.task.items) {
    item.requests = {{.kind = RequestKind::generate, .context = "Q:"}};
    item.answers = {"2"};
  }
  entry.answers = {{.text = "1, 2"}, {.text = "2, 2"}};
  const BenchmarkReport report(Selection{.tasks = {"a"}}, {entry});
  const Json json = report.results(facts_at("t"));
  EXPECT_EQ(json["results"]["a"]["exact_match,first"], 0.5);
  EXPECT_EQ(json["results"]["a"]["exact_match,last"], 1.0);
  EXPECT_TRUE(json["results"]["a"].contains("exact_match_stderr,last"));
  EXPECT_EQ(json["higher_is_better"]["a"].dump(), R"({"exact_match":true})");
  EXPECT_EQ(json["configs"]["a"]["metric_list"].size(), 1U);
  EXPECT_EQ(json["n-samples"]["a"].dump(), R"({"original":3,"effective":2})");
  EXPECT_EQ(json["task_hashes"]["a"], task_hash(entry.task.items, 2));
  std::string order;
  std::istringstream lines(report.samples(0));
  for (std::string line; std::getline(lines, line);) {
    const Json sample = Json::parse(line);
    order += sample["doc_id"].dump() + sample["filter"].dump() + sample["resps"].dump() +
             sample["filtered_resps"].dump() + sample["exact_match"].dump() + "\n";
  }
  EXPECT_EQ(order, R"(0"first"[["1, 2"]]["1"]0.0
1"first"[["2, 2"]]["2"]1.0
0"last"[["1, 2"]]["2"]1.0
1"last"[["2, 2"]]["2"]1.0
)");
}

TEST(BenchmarkReport, WordsAndBytesOfASampleAreIntegers) {
  AnsweredTask entry = task_of("a", {true});
  entry.task.definition.metrics = {
      {"word_perplexity", ItemScore::rolling_words, Aggregation::weighted_perplexity, false}};
  entry.task.items[0].requests = {{.kind = RequestKind::rolling, .context = "one two"}};
  entry.task.items[0].words = 2;
  entry.answers = {{.log_likelihood = -4.5}};
  const Json sample = Json::parse(BenchmarkReport(Selection{.tasks = {"a"}}, {entry}).samples(0));
  EXPECT_EQ(sample["word_perplexity"].dump(), "[-4.5,2]");
  EXPECT_EQ(sample["resps"].dump() + sample["filtered_resps"].dump(), R"([["-4.5"]]["-4.5"])");
}

TEST(BenchmarkReport, NamesOfModelsBecomePartsOfPaths) {
  EXPECT_EQ(sanitized_model_name("a/b::c|d*?e"), "a__b__c__d__e");
  EXPECT_EQ(sanitized_model_name("step-1"), "step-1");
  EXPECT_EQ(sanitized_model_name("../../run/step-1"), "run__step-1");
  EXPECT_EQ(sanitized_model_name("./step-1"), "step-1");
  EXPECT_EQ(sanitized_model_name("/a/b"), "__a__b");
  EXPECT_EQ(sanitized_model_name(".a"), ".a");
}

// As "--checkpoint .." names a step: its report would lie outside of the output.
TEST(BenchmarkReport, ADirectoryOfDotsIsCalledByItsName) {
  const Scratch scratch;
  const std::filesystem::path before = std::filesystem::current_path(), step = scratch / "step-00000001";
  std::filesystem::create_directories(step / "a/b");
  std::filesystem::current_path(step / "a/b");
  const std::vector<std::string> found = {model_name_of("../.."), model_name_of("./.././../"), model_name_of("."),
                                          model_name_of("../../a"), model_name_of("/")};
  std::filesystem::current_path(before);
  EXPECT_THAT(found, ElementsAre("step-00000001", "step-00000001", "b", "../../a", "/"));
  EXPECT_EQ(sanitized_model_name("/"), "__");
}

TEST(BenchmarkReport, LongNamesFitAFileSystem) {
  const Scratch scratch;
  std::string name = "perplexity_";
  while (name.size() < 240) name += "大";
  const std::string other = name + "b", begin = sanitized_model_name(name + "a");
  EXPECT_LE(begin.size(), 200);
  EXPECT_NE(begin, sanitized_model_name(other));
  EXPECT_EQ(begin.substr(0, 158), name.substr(0, 158));
  EXPECT_EQ(Json(begin).dump().size(), begin.size() + 2) << "whole characters";
  const BenchmarkReport report(Selection{.tasks = {other}}, {task_of(other, {true})});
  ReportFacts facts = facts_at("2026-01-01T00-00-00.000000");
  facts.model_name = std::string(300, 'm') + "/step-1";
  report.write(scratch / "x", facts);
  std::vector<Evaluation> both(2, open_evaluation(scratch / "x"));
  EXPECT_THAT(compare_evaluations(both).at(0).differences, SizeIs(1));
}

TEST(BenchmarkReport, AnswersMustBeAsManyAsRequests) {
  AnsweredTask entry = task_of("a", {true});
  entry.answers.pop_back();
  EXPECT_ERROR(BenchmarkReport(Selection{.tasks = {"a"}}, {entry}), ExitCode::crash, "a: 2 requests, 1 answers");
}

class Compare : public ::testing::Test {
 protected:
  std::string write(const std::string& folder, const std::vector<AnsweredTask>& tasks) {
    const BenchmarkReport report(selection_of(tasks), tasks);
    return report.write(scratch_ / folder, facts_at("2026-01-01T00-00-00.000000"));
  }
  Comparison compare() const {
    std::vector<Evaluation> both = {open_evaluation(scratch_ / "x"), open_evaluation(scratch_ / "y")};
    name_evaluations(both);
    return compare_evaluations(both).at(0);
  }
  Scratch scratch_;
};

TEST_F(Compare, DifferencesArePairedByItem) {
  write("x", {task_of("a", {true, false, false, false, true})});
  write("y", {task_of("a", {true, true, true, false, false})});
  const Comparison comparison = compare();
  EXPECT_EQ(comparison.first, "x");
  EXPECT_EQ(comparison.second, "y");
  EXPECT_THAT(comparison.faults, IsEmpty());
  ASSERT_THAT(comparison.differences, SizeIs(1));
  const PairedDifference& paired = comparison.differences[0];
  EXPECT_DOUBLE_EQ(paired.first, 0.4);
  EXPECT_DOUBLE_EQ(paired.second, 0.6);
  EXPECT_DOUBLE_EQ(paired.difference, 0.2);
  EXPECT_NEAR(paired.error.value(), std::sqrt(0.7 / 5), 1e-12);  // of 0, 1, 1, 0, -1: variance 0.7
  EXPECT_EQ(paired.wins, 2);
  EXPECT_EQ(paired.losses, 1);
  EXPECT_DOUBLE_EQ(paired.sign_test, 1);
  EXPECT_THAT(to_text(comparison), HasSubstr("+0.2000"));
}

TEST_F(Compare, TheReportThatItTookIsNamed) {
  const std::vector<AnsweredTask> tasks = {task_of("a", {true})};
  const std::string newest = write("x", tasks), other = write("y", tasks);
  BenchmarkReport(selection_of(tasks), tasks).write(scratch_ / "x", facts_at("2025-12-31T00-00-00.000000"));
  EXPECT_THAT(to_text(compare()),
              HasSubstr("y compared with x\n  first: " + newest + ", the newest of 2\n  second: " + other + "\n\n"));
  EXPECT_EQ(to_json(compare())["first_report"], newest);
  EXPECT_EQ(to_json(compare())["second_report"], other);
}

// Texts of so many words, and as many bytes, with the log-likelihoods of each.
AnsweredTask texts_of(const std::vector<double>& words, const std::vector<double>& likelihoods) {
  AnsweredTask entry = task_of("text", std::vector<bool>(words.size(), true));
  entry.task.definition.metrics = {kBitsPerByte, kWordPerplexity};
  entry.answers.clear();
  for (size_t i = 0; i < words.size(); ++i) {
    Item& item = entry.task.items[i];
    item.requests = {{.kind = RequestKind::rolling, .context = "text"}};
    item.words = item.bytes = words[i];
    entry.answers.push_back({.log_likelihood = likelihoods[i]});
  }
  return entry;
}

// e^2000 is no double. What it is made of is compared all the same.
TEST_F(Compare, APerplexityBeyondAllNumbersIsToldAndCompared) {
  const BenchmarkReport large({.tasks = {"text"}}, {texts_of({1, 1}, {-1990, -2010})});
  write("x", {texts_of({1, 1}, {-1990, -2010})});
  write("y", {texts_of({1, 1}, {-1991, -2012})});
  EXPECT_THAT(infinite_perplexity_note(large.rows()),
              HasSubstr("text word_perplexity is too large for a floating-point number"));
  EXPECT_THAT(results_table(large.rows()), HasSubstr(" inf "));
  EXPECT_THAT(infinite_perplexity_note(BenchmarkReport({.tasks = {"text"}}, {texts_of({1}, {-200})}).rows()),
              IsEmpty());
  const Comparison comparison = compare();
  EXPECT_NEAR(comparison.differences.at(1).gain, -1.5, 1e-12);
  EXPECT_THAT(to_text(comparison),
              HasSubstr("| word_perplexity |     2 |       inf |       inf |        n/a |     n/a |"));
  EXPECT_TRUE(to_json(comparison)["differences"][1]["difference"].dump() == "null");
}

TEST(BenchmarkReport, LargeValuesStayReadable) {
  EXPECT_EQ(number_text(12.34567), "12.3457");
  EXPECT_EQ(number_text(999999.99999), "1000000.0000");
  EXPECT_EQ(number_text(std::exp(200)), "7.2260e+86");
  EXPECT_EQ(number_text(std::nan("")), "n/a");
}

TEST_F(Compare, OneItemSaysNothingOfAnError) {
  write("x", {texts_of({3}, {-2})});
  write("y", {texts_of({3}, {-1})});
  const Comparison comparison = compare();
  ASSERT_FALSE(comparison.differences.empty());
  EXPECT_FALSE(comparison.differences[0].error);
  EXPECT_TRUE(to_json(comparison)["differences"][0]["error"].is_null());
  EXPECT_THAT(to_text(comparison), HasSubstr("n/a"));
}

// Two short texts become likelier, a long one far less: the perplexity of all their words rises.
TEST_F(Compare, APerplexitysDifferenceIsOfAllItsWords) {
  write("x", {texts_of({1, 1, 100}, {-2, -2, -100})});
  write("y", {texts_of({1, 1, 100}, {-1, -1, -150})});
  const Comparison comparison = compare();
  EXPECT_THAT(comparison.faults, IsEmpty());
  ASSERT_THAT(comparison.differences, SizeIs(2));
  const PairedDifference &bits = comparison.differences[0], &words = comparison.differences[1];
  EXPECT_EQ(words.metric, "word_perplexity");
  EXPECT_NEAR(words.first, std::exp(104.0 / 102), 1e-12);
  EXPECT_GT(words.second, words.first);
  const double mean = -48.0 / 102;
  EXPECT_NEAR(words.second, std::exp(152.0 / 102), 1e-12);
  EXPECT_DOUBLE_EQ(words.difference, words.second - words.first) << "as the columns, in their unit";
  EXPECT_FALSE(words.higher_is_better);
  EXPECT_NEAR(words.gain, mean, 1e-12);
  EXPECT_NEAR(words.gain, std::log(words.first / words.second), 1e-12);
  const double squares = 2 * std::pow(1 - mean, 2) + std::pow(-50 - 100 * mean, 2);
  EXPECT_NEAR(words.gain_error.value(), std::sqrt(1.5 * squares) / 102, 1e-12);
  // By the slopes of exp(-m) at both means: items move the difference by -P2·(v2 + w·152/102) + P1·(v1 + w·104/102).
  const auto moves = [&](double v1, double v2, double w) {
    return -words.second * (v2 + w * 152 / 102) + words.first * (v1 + w * 104 / 102);
  };
  const double moved = 2 * std::pow(moves(-2, -1, 1), 2) + std::pow(moves(-100, -150, 100), 2);
  EXPECT_NEAR(words.error.value(), std::sqrt(1.5 * moved) / 102, 1e-12);
  EXPECT_EQ(words.wins, 2);
  EXPECT_EQ(words.losses, 1);
  EXPECT_EQ(bits.metric, "bits_per_byte");
  EXPECT_NEAR(bits.first, 104 / std::log(2.0) / 102, 1e-12);
  EXPECT_DOUBLE_EQ(bits.difference, bits.second - bits.first);
  EXPECT_NEAR(bits.gain, -bits.difference, 1e-12);
  EXPECT_NEAR(bits.error.value(), *words.gain_error / std::log(2.0), 1e-12);
  EXPECT_NEAR(bits.gain_error.value(), *bits.error, 1e-12);
  EXPECT_THAT(to_text(comparison), HasSubstr("| 2.7721 | 4.4380 |    +1.6659 |"));
}

// Of a report: its samples of task a, and what it says itself, as the harness may have written them.
void rewrite(
    const std::string& results, const std::function<void(Json& sample, int64_t item)>& change,
    const std::function<void(Json& report)>& change_report = [](Json&) {}) {
  const std::string time = "2026-01-01T00-00-00.000000";
  const std::string samples = std::filesystem::path(results).parent_path() / ("samples_a_" + time + ".jsonl");
  std::istringstream lines(read_file(samples));
  std::string changed;
  int64_t item = 0;
  for (std::string line; std::getline(lines, line); ++item) {
    Json sample = Json::parse(line);
    change(sample, item);
    changed += sample.dump() + "\n";
  }
  std::ofstream(samples) << changed;
  Json report = Json::parse(read_file(results));
  change_report(report);
  std::ofstream(results) << report.dump();
}

// The standard error is that of the difference in the table: as far as a difference moves where each item in turn is
// left out (a jackknife).
TEST_F(Compare, APerplexitysErrorIsOfItsDifference) {
  std::vector<double> words, ours, theirs;
  for (int i = 0; i < 200; ++i) {
    words.push_back(5 + i % 7);
    ours.push_back(-words.back() * (2 + 0.3 * std::sin(i)));
    theirs.push_back(-words.back() * (1.9 + 0.3 * std::sin(i) + 0.1 * std::cos(3 * i)));
  }
  write("x", {texts_of(words, ours)});
  write("y", {texts_of(words, theirs)});
  const PairedDifference paired = compare().differences.at(1);
  std::vector<double> without;
  for (size_t left = 0; left < words.size(); ++left) {
    double first = 0, second = 0, weights = 0;
    for (size_t i = 0; i < words.size(); ++i) {
      if (i == left) continue;
      first += ours[i], second += theirs[i], weights += words[i];
    }
    without.push_back(std::exp(-second / weights) - std::exp(-first / weights));
  }
  double mean = 0, squares = 0;
  for (const double one : without) mean += one / 200;
  for (const double one : without) squares += std::pow(one - mean, 2);
  EXPECT_NEAR(paired.error.value(), std::sqrt(squares * 199 / 200), 0.002 * *paired.error);
  EXPECT_GT(paired.wins, 100);
  EXPECT_LT(paired.difference, 0) << "a lower perplexity is better";
  EXPECT_GT(paired.gain, 0);
}

// Columns and difference are of the same items, whatever is left out.
TEST_F(Compare, ValuesAreOfTheItemsThatAreCompared) {
  const std::string results = write("x", {task_of("a", {true, true, false})});
  rewrite(results, [](Json& sample, int64_t item) {
    if (item == 0) sample["acc"] = nullptr;
  });
  write("y", {task_of("a", {true, true, true})});
  const PairedDifference paired = compare().differences.at(0);
  EXPECT_EQ(paired.items, 2);
  EXPECT_DOUBLE_EQ(paired.first, 0.5);
  EXPECT_DOUBLE_EQ(paired.second, 1);
  EXPECT_DOUBLE_EQ(paired.difference, 0.5);
}

// Names and aliases of tasks are others' words: a table's cell stays one, and no terminal is steered.
TEST_F(Compare, HostileNamesStayNames) {
  const std::string evil = "a|b\n<script>\x1b[2J\u202E";
  AnsweredTask task = task_of("a", {true, false});
  task.task.definition.alias = evil;
  const std::string table = results_table(BenchmarkReport({.tasks = {"a"}}, {task}).rows());
  EXPECT_THAT(table, HasSubstr("| a\\|b\\x0A\\<script\\>\\x1B\\[2J\\xE2\\x80\\xAE |")) << table;
  EXPECT_EQ(std::ranges::count(table, '\n'), 3);
  for (const char* folder : {"x", "y"}) {
    const std::string results = write(folder, {task_of("a", {true, folder[0] == 'y'})});
    std::string text = read_file(results);
    for (size_t at = 0; (at = text.find("\"a\":", at)) != text.npos;) text.replace(at, 4, Json(evil).dump() + ":");
    std::ofstream(results) << text;
    const std::filesystem::path parent = std::filesystem::path(results).parent_path();
    const std::string time = "_2026-01-01T00-00-00.000000.jsonl";
    std::filesystem::rename(parent / ("samples_a" + time), parent / ("samples_" + sanitized_model_name(evil) + time));
  }
  const std::string text = to_text(compare());
  EXPECT_EQ(text.find_first_of("\x1b\r"), text.npos);
  EXPECT_EQ(text.find("\u202E"), text.npos);
  EXPECT_EQ(std::ranges::count(text, '\n'), 12) << text;
}

// Words counted in two ways, as by two versions of the harness.
TEST_F(Compare, AnItemOfOtherWordsIsNamedAndLeftOut) {
  write("x", {texts_of({1, 1, 100}, {-2, -2, -100})});
  write("y", {texts_of({1, 2, 100}, {-1, -1, -150})});
  const Comparison comparison = compare();
  EXPECT_THAT(comparison.faults, ElementsAre(HasSubstr("bits_per_byte: item 1"), HasSubstr("word_perplexity: item 1")));
  EXPECT_EQ(comparison.differences.at(0).items, 2);
}

TEST_F(Compare, AnItemWithoutANumberIsNamedAndLeftOut) {
  const double nan = std::nan("");
  write("x", {texts_of({1, 1, 2}, {nan, -2, -3}), task_of("a", {true, true, false})});
  AnsweredTask asked = task_of("a", {true, false, true});
  asked.answers[3].log_likelihood = nan;  // of item 1, whose accuracy is a number all the same
  write("y", {texts_of({1, 1, 2}, {-1, -1, -2}), asked});
  const Comparison comparison = compare();
  EXPECT_THAT(comparison.faults,
              ElementsAre(HasSubstr("text, bits_per_byte: item 0 "), HasSubstr("text, word_perplexity: item 0 "),
                          HasSubstr("a, acc: item 1 ")));
  ASSERT_THAT(comparison.differences, SizeIs(3));
  for (const PairedDifference& paired : comparison.differences) EXPECT_EQ(paired.items, 2) << paired.metric;
  write("y", {texts_of({1, 1, 2}, {nan, nan, nan}), asked});
  const Comparison of_none = compare();
  EXPECT_THAT(of_none.faults, ElementsAre(HasSubstr("item 0, 1, 2"), HasSubstr("item 0, 1, 2"), HasSubstr("item 1")));
  EXPECT_THAT(of_none.differences, SizeIs(1));
}

// Where this program writes null, the harness writes what is no JSON.
TEST_F(Compare, TheHarnesssNumbersThatAreNoneAreRead) {
  const double nan = std::nan("");
  write("x", {texts_of({1, 1, 2}, {-2, -2, -3})});
  const std::string results = write("y", {texts_of({1, 1, 2}, {nan, -1, -2})});
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(results).parent_path())) {
    std::string text = read_file(entry.path());
    for (const std::string from : {"\"bits_per_byte,none\": null", "[null,1]"}) {
      if (const size_t at = text.find(from); at != std::string::npos) text.replace(at + from.find("null"), 4, "NaN");
    }
    std::ofstream(entry.path()) << text;
  }
  EXPECT_THAT(read_file(results), HasSubstr(": NaN"));
  const Comparison comparison = compare();
  EXPECT_THAT(comparison.faults,
              ElementsAre(HasSubstr("bits_per_byte: item 0 "), HasSubstr("word_perplexity: item 0 ")));
  EXPECT_EQ(comparison.differences.at(0).items, 2);
}

// The harness writes an item once for each filter of its answers.
TEST_F(Compare, EachFilterOfTheHarnessIsCompared) {
  const std::string folder = std::filesystem::path(write("y", {task_of("a", {true, true, false})})).parent_path();
  write("x", {task_of("a", {true, false, false})});
  const auto filter_also = [&](const std::string& directory, const std::string& value, double reported) {
    const std::string time = "2026-01-01T00-00-00.000000", samples = directory + "/samples_a_" + time + ".jsonl";
    std::istringstream lines(read_file(samples));
    std::string more;
    for (std::string line; std::getline(lines, line);) {
      Json sample = Json::parse(line);
      sample["filter"] = "flexible-extract";
      sample["acc"] = Json::parse(value);
      more += sample.dump() + "\n";
    }
    std::ofstream(samples, std::ios::app) << more;
    const std::string results = directory + "/results_" + time + ".json";
    Json report = Json::parse(read_file(results));
    report["results"]["a"]["acc,flexible-extract"] = reported;
    std::ofstream(results) << report.dump();
  };
  filter_also(folder, "1.0", 1);
  filter_also(std::filesystem::path(open_evaluation(scratch_ / "x").path).parent_path(), "0.0", 0);
  const Comparison comparison = compare();
  EXPECT_THAT(comparison.faults, IsEmpty());
  ASSERT_THAT(comparison.differences, SizeIs(2));
  const PairedDifference &plain = comparison.differences[0], &filtered = comparison.differences[1];
  EXPECT_EQ(plain.metric + " " + filtered.metric, "acc acc,flexible-extract");
  EXPECT_NEAR(plain.difference, 1.0 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(filtered.difference, 1);
  EXPECT_DOUBLE_EQ(filtered.second - filtered.first, 1);
}

// The harness writes an item of f1 and mcc as [gold, prediction]: the mean of these says nothing.
TEST_F(Compare, PairsOfOtherMetricsAreNoNumbers) {
  const auto as_f1 = [](int64_t predicted) {
    return [=](Json& sample, int64_t item) {
      sample["metrics"] = Json::array({"f1"});
      sample["f1"] = Json::array({1, item == 0 ? 1 : predicted});
    };
  };
  rewrite(write("x", {task_of("a", {true, true, false})}), as_f1(0));
  rewrite(write("y", {task_of("a", {true, true, true})}), as_f1(1));
  const Comparison comparison = compare();
  EXPECT_THAT(comparison.differences, IsEmpty());
  EXPECT_THAT(comparison.faults, ElementsAre(HasSubstr("a, f1: item 0, 1, 2 are not finite")));
}

// What a report says of a metric decides what a win is; perplexities are better where they are lower.
TEST_F(Compare, LowerIsBetterWhereReportsSaySo) {
  const auto as_ter = [](double of_last) {
    return [=](Json& sample, int64_t item) {
      sample["metrics"] = Json::array({"ter"});
      sample["ter"] = item == 2 ? of_last : 0.25;
    };
  };
  const auto lower = [](Json& report) { report["higher_is_better"] = {{"a", {{"ter", false}}}}; };
  rewrite(write("x", {task_of("a", {true, true, false})}), as_ter(0.5), lower);
  rewrite(write("y", {task_of("a", {true, true, true})}), as_ter(1.25), lower);
  const Comparison comparison = compare();
  ASSERT_THAT(comparison.differences, SizeIs(1));
  const PairedDifference& paired = comparison.differences[0];
  EXPECT_DOUBLE_EQ(paired.difference, 0.25);
  EXPECT_EQ(paired.wins, 0);
  EXPECT_EQ(paired.losses, 1);
  EXPECT_EQ(to_json(comparison)["differences"][0]["higher_is_better"], false);
  const std::string text = to_text(comparison), drawing = text.substr(text.rfind("ter"));
  EXPECT_LT(drawing.find('o'), drawing.find('|')) << text;
  write("x", {texts_of({1, 1}, {-2, -2})});
  write("y", {texts_of({1, 1}, {-1, -1})});
  const Comparison of_texts = compare();
  const PairedDifference& words = of_texts.differences.at(1);
  EXPECT_EQ(words.metric, "word_perplexity");
  EXPECT_EQ(words.wins, 2);
  EXPECT_FALSE(words.higher_is_better);
}

TEST_F(Compare, AReportWithoutSamplesIsRefused) {
  const auto none = [](Json& report) { report["task_hashes"] = Json::object(); };
  const std::string results = write("x", {task_of("a", {true})});
  rewrite(
      results, [](Json&, int64_t) {}, none);
  EXPECT_ERROR(
      open_evaluation(results), ExitCode::bad_input,
      results +
          " names no samples, but the comparison of items needs them (lm_eval writes samples with --log_samples)");
}

TEST_F(Compare, AMetricOfOneSideAloneIsTold) {
  write("x", {task_of("a", {true, false})});
  AnsweredTask other = task_of("a", {true, false});
  other.task.definition.metrics.push_back({"acc_bytes", ItemScore::likeliest_per_byte});
  write("y", {other});
  EXPECT_THAT(compare().faults, ElementsAre("a: acc_bytes exists only in y"));
}

TEST_F(Compare, AChangedItemIsNamedAndLeftOut) {
  write("x", {task_of("a", {true, false, true})});
  AnsweredTask changed = task_of("a", {true, true, true});
  changed.task.items[1].document["question"] = "another";
  write("y", {changed});
  const Comparison comparison = compare();
  ASSERT_THAT(comparison.faults, SizeIs(1));
  EXPECT_THAT(comparison.faults[0], HasSubstr("a: item 1 differ"));
  EXPECT_EQ(comparison.differences.at(0).items, 2);
  EXPECT_THAT(to_text(comparison), HasSubstr("item 1"));
}

TEST_F(Compare, TasksOfOneSideAloneAreTold) {
  write("x", {task_of("a", {true}), task_of("b", {true})});
  write("y", {task_of("a", {true}), task_of("c", {true})});
  EXPECT_THAT(compare().faults, ElementsAre("b was not evaluated by y", "c was not evaluated by x"));
}

TEST_F(Compare, WhatIsMissingOrMalformedIsNamed) {
  EXPECT_ERROR(open_evaluation(scratch_ / "nowhere"), ExitCode::bad_input, "does not exist");
  std::filesystem::create_directory(scratch_ / "empty");
  EXPECT_ERROR(open_evaluation(scratch_ / "empty"), ExitCode::bad_input, "contains no results_*.json");
  EXPECT_ERROR(open_evaluation(scratch_.write("results_x.json", "{")), ExitCode::bad_input, "is not JSON");
  EXPECT_ERROR(open_evaluation(scratch_.write("results_y.json", "{}")), ExitCode::bad_input, "lacks \"results\"");
  write("x", {task_of("a", {true})});
  const std::string path = write("y", {task_of("a", {true})});
  const std::string samples = std::filesystem::path(path).parent_path() / "samples_a_2026-01-01T00-00-00.000000.jsonl";
  std::filesystem::remove(samples);
  EXPECT_ERROR(compare(), ExitCode::bad_input, samples + " is missing");
  std::ofstream(samples) << "{\"doc_id\": 0}\n";
  EXPECT_ERROR(compare(), ExitCode::bad_input, samples + ":1 is not a sample");
}

TEST(SignTest, IsTwoSided) {
  EXPECT_DOUBLE_EQ(sign_test(0, 0), 1);
  EXPECT_DOUBLE_EQ(sign_test(3, 3), 1);
  EXPECT_NEAR(sign_test(0, 5), 2.0 / 32, 1e-15);
  EXPECT_NEAR(sign_test(9, 1), 2.0 * 11 / 1024, 1e-14);
}

}  // namespace
}  // namespace shiftron
