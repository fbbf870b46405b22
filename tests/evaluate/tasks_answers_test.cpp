// Generated texts and right answers: filters, what a comparison ignores, and task files that use both.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "evaluate/tasks/answer_text.h"
#include "evaluate/tasks/metrics.h"
#include "evaluate/tasks/task.h"
#include "evaluate/tasks/text_template.h"
#include "expect_error.h"
#include "scratch.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;
using Texts = std::vector<std::string>;

std::string extracted(const std::string& pattern, const std::string& text, bool last = false) {
  return filtered_answer({.name = "x", .extract = pattern, .last = last}, text);
}

TEST(AnswerText, a_filter_takes_a_match) {
  EXPECT_EQ(extracted("#### (\\d+)", "#### 12\n#### 13"), "12");
  EXPECT_EQ(extracted("#### (\\d+)", "#### 12\n#### 13", true), "13");
  EXPECT_EQ(extracted("(-?[$0-9.,]{2,})|(-?[0-9]+)", "so 3 * 4"), "3");
  EXPECT_EQ(extracted("is( .*)", "it is  so "), "so");
  EXPECT_EQ(extracted("\\d+", "none"), "[invalid]");
  EXPECT_EQ(extracted("x(a*)", "x"), "");
  EXPECT_EQ(extracted("x(a*)(b*)", "x"), "[invalid]");
}

TEST(AnswerText, a_filter_strips_the_side_that_it_names) {
  const auto stripped = [](Side side) { return filtered_answer({.name = "x", .strip = side}, " \u3000a\t"); };
  EXPECT_EQ(stripped(Side::neither), " \u3000a\t");
  EXPECT_EQ(stripped(Side::left), "a\t");
  EXPECT_EQ(stripped(Side::right), " \u3000a");
  EXPECT_EQ(stripped(Side::both), "a");
}

TEST(AnswerText, a_comparison_ignores_what_it_says) {
  const auto same = [](const std::string& answer, const Texts& right, const AnswerComparison& comparison) {
    return is_any_of(answer, right, comparison);
  };
  EXPECT_TRUE(same("b", {"a", "b"}, {}));
  EXPECT_FALSE(same("ab", {"a", "b"}, {}));
  EXPECT_TRUE(same(" b", {"b\n"}, {}));
  EXPECT_FALSE(same(" b", {"b"}, {.ignore_ends = false}));
  EXPECT_TRUE(same("ÉTÉ", {"été"}, {.ignore_case = true}));
  EXPECT_TRUE(same("o'b.", {"ob"}, {.ignore_punctuation = true}));
  EXPECT_FALSE(same("“b”", {"b"}, {.ignore_punctuation = true}));  // ASCII's alone
  // Patterns come first and see the letters as they are.
  EXPECT_TRUE(same("XaA", {"a"}, {.ignored = {"X", "A"}, .ignore_case = true}));
  EXPECT_FALSE(same("xa", {"a"}, {.ignored = {"X"}, .ignore_case = true}));
}

// As in numpy 2.4.6: np.char.lower(["İx"]) is ["i\u0307"], cut to the two characters that the array has.
TEST(AnswerText, texts_have_the_width_of_the_harnesss_arrays) {
  const AnswerComparison no_case{.ignore_ends = false, .ignore_case = true};
  EXPECT_TRUE(is_any_of("İx", Texts{"i\u0307"}, no_case));
  EXPECT_TRUE(is_any_of("i\u0307x", Texts{"İx", "longer"}, no_case));
  EXPECT_FALSE(is_any_of("i\u0307x", Texts{"İx", "y"}, no_case));
  EXPECT_TRUE(is_any_of(std::string("4\0", 2), Texts{"4"}, {.ignore_ends = false}));
  EXPECT_TRUE(is_any_of(std::string("4.\0", 3), Texts{"4"}, {.ignore_ends = false, .ignored = {"x", "\\.$"}}));
}

TEST(TextTemplate, words_change_and_are_chosen) {
  const Json item = {{"q", " Éa b "}, {"kind", "cause"}, {"n", 1}, {"empty", ""}};
  const auto fill = [&](const std::string& text) { return TextTemplate(text, "task").of(item, "here"); };
  EXPECT_EQ(fill("[{q|strip_left}][{q|strip_right}]"), "[Éa b ][ Éa b]");
  EXPECT_EQ(fill("{q|strip|lower_first}, {q|strip|without_last|without_last}"), "éa b, Éa");
  EXPECT_EQ(fill("{q|strip|without_last|without_last|without_last|without_last}"), "");
  EXPECT_EQ(fill("{empty|lower_first}{empty|without_last}"), "");
  EXPECT_EQ(fill("{kind|one_of:cause=because,effect=so|without_last} {n|one_of:0=no,1=a=b}"), "becaus a=b");
  EXPECT_ERROR(fill("{kind|one_of:effect=so}"), ExitCode::bad_input, "the value is \"cause\", not one of effect");
  EXPECT_ERROR(fill("{kind|one_of}"), ExitCode::bad_input, "one_of needs values, as in one_of:cause=because");
  EXPECT_ERROR(fill("{kind|one_of:cause}"), ExitCode::bad_input, "\"cause\" is not VALUE=TEXT");
  EXPECT_ERROR(fill("{kind|strip:left}"), ExitCode::bad_input, "strip takes no values");
}

class AnswerTask : public ::testing::Test {
 protected:
  // A task of kind generate with these keys, about the items of q.jsonl.
  std::string file(const std::string& keys) {
    return folder_.write("mine.json", R"({"name": "mine", "kind": "generate", "context": "Q: {q}\nA:", )" + keys + "}");
  }
  LoadedTask load(const std::string& keys) {
    TaskRegistry registry;
    registry.select({file(keys)});
    return registry.load("mine", folder_.path());
  }

  Scratch folder_;
};

TEST_F(AnswerTask, any_target_is_right_and_an_example_shows_the_first) {
  folder_.write("q.jsonl", R"({"q": "one", "a": {"all": ["Ada", "O'L."]}})");
  folder_.write("more.jsonl", R"({"q": "two", "a": {"all": ["x", "y"]}})");
  const LoadedTask task =
      load(R"("files": {"test": "q.jsonl", "more": "more.jsonl"}, "targets": "a.all", "shots": 1, "shots_from": "more",
              "ignore_case": true, "ignore_punctuation": true, "filters": {"plain": {"strip": "left"}})");
  EXPECT_EQ(task.items[0].requests[0].context, "Q: two\nA: x\n\nQ: one\nA:");
  EXPECT_EQ(task.items[0].target, "['Ada', \"O'L.\"]");
  ASSERT_EQ(task.definition.metrics.size(), 1U);
  const auto right = [&](const std::string& text) {
    return score(task.definition.metrics[0], task.items[0], std::vector<Answer>{{.text = text}}).value;
  };
  EXPECT_EQ(name_with_filter(task.definition.metrics[0]), "exact_match,plain");
  EXPECT_EQ(right(" ol"), 1);
  EXPECT_EQ(right("ADA"), 1);
  EXPECT_EQ(right("ada "), 0);  // with filters no other white space is ignored
  EXPECT_EQ(load(R"("files": {"test": "q.jsonl"}, "targets": ["{q}", "{a.all.0}"])").items[0].answers,
            (Texts{"one", "Ada"}));
}

TEST_F(AnswerTask, every_metric_has_every_filter) {
  folder_.write("q.jsonl", R"({"q": "one", "a": "4"})");
  const LoadedTask task =
      load(R"("files": {"test": "q.jsonl"}, "target": "{a}", "metrics": ["math_match", "exact_match"],
      "ignored": ["\\$"], "filters": {"first": {"extract": "\\$?[0-9]+", "match": "first"},
                                      "last": {"extract": "\\$?[0-9]+", "match": "last"}})");
  std::string names, values;
  for (const Metric& metric : task.definition.metrics) {
    names += name_with_filter(metric) + " ";
    values += score(metric, task.items[0], std::vector<Answer>{{.text = "$4, 5"}}).value == 1 ? "1" : "0";
  }
  EXPECT_EQ(names, "math_match,first exact_match,first math_match,last exact_match,last ");
  EXPECT_EQ(values, "0100");  // math_match ignores no pattern
}

TEST_F(AnswerTask, faults_of_filters_are_told) {
  const std::string keys = R"("files": {"test": "q.jsonl"}, "target": "{q}", "targets": ["{q}"], "ignored": ["(a"],
      "ignore_case": 1, "filters": {"none": {}, "a": {"extract": "b(", "match": "third", "sides": "left", "strip": "up"}})";
  for (const char* part :
       {"targets or target says what is right", "ignored has \"(a\", which is not a regular expression",
        "ignore_case must be true or false", "filters has the name \"none\"", "filters has \"b(\", which is not",
        "filters of \"a\" has match third; a filter has extract", "of \"a\" has sides left", "of \"a\" has strip up"}) {
    EXPECT_ERROR(TaskRegistry().select({file(keys)}), ExitCode::bad_input, part);
  }
  EXPECT_ERROR(TaskRegistry().select({file(R"("files": {"test": "q"}, "target": "x", "filters": {}, "ignored": [])")}),
               ExitCode::bad_input, "filters must be an object");
}

// The harness draws k + 1 and leaves the item out if a task has no test split, whatever split the examples come from.
TEST_F(AnswerTask, without_a_test_split_items_are_left_out_of_examples) {
  const auto draw_of = [&](const std::string& keys) { return load(keys + R"(, "target": "{a}")").definition.draw; };
  folder_.write("q.jsonl", R"({"q": "one", "a": "4"})");
  const std::string files =
      R"("files": {"validation": "q.jsonl", "test": "q.jsonl", "train": "t.jsonl"}, "shots_from": "train")";
  EXPECT_EQ(draw_of(files + R"(, "split": "validation")"), ShotDraw::apart);
  EXPECT_EQ(draw_of(files + R"(, "split": "validation", "draw": "sampled")"), ShotDraw::sampled);
  EXPECT_EQ(draw_of(files), ShotDraw::sampled);
}

}  // namespace
}  // namespace shiftron
