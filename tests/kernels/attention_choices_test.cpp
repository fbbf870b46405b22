// Choices of attention as text: what is read is what was written, and what is wrong is named.
#include "kernels/attention_choices.h"

#include "kernels/kernel_testing.h"

namespace shiftron {
namespace {

using kernel_testing::replaced;

AttentionChoices some_attention_choices() {
  AttentionProblem problem{.samples = 2, .length = 3, .heads = 8, .kv_heads = 4, .head_dim = 16, .documents = false};
  problem.q = {1, 2};
  problem.k = {3, 4};
  problem.v = {5, 6};
  problem.out = {7, 8};
  problem.statistics = 9;
  AttentionChoices choices{.device = "a \"device\"", .library = 91900, .of = {}};
  choices.of[problem] = {.engine = 7, .knobs = {{24, 3}, {2, -1}}, .workspace = 1 << 20, .seconds = 1.0 / 3e6};
  problem.pass = AttentionPass::backward;
  problem.documents = true;
  problem.deterministic = true;
  problem.d_out = {10, 11};
  problem.d_q = {12, 13};
  problem.d_k = {14, 15};
  problem.d_v = {16, 17};
  choices.of[problem] = {};
  return choices;
}

TEST(AttentionChoices, AreReadAsTheyWereWritten) {
  EXPECT_EQ(attention_choices_from(to_json(some_attention_choices()), "choices.json"), some_attention_choices())
      << to_json(some_attention_choices());
}

TEST(AttentionChoices, ProblemsSpeak) {
  const AttentionChoices choices = some_attention_choices();
  EXPECT_EQ(
      choices.of.begin()->first.text(),
      "attention forward: 2 samples of 3 rows, heads 8/4 of 16, whole samples, q by 1 and 2, k by 3 and 4, v by 5 "
      "and 6, out by 7 and 8, log_sum_exp by 9");
  EXPECT_EQ(choices.of.rbegin()->first.text(),
            "attention backward: 2 samples of 3 rows, heads 8/4 of 16, deterministic, q by 1 and 2, k by 3 and 4, v by "
            "5 and 6, out by 7 and 8, d_out by 10 and 11, d_q by 12 and 13, d_k by 14 and 15, d_v by 16 and 17, "
            "log_sum_exp by 9");
}

TEST(AttentionChoices, FaultsAreNamed) {
  const std::string text = to_json(some_attention_choices());
  const auto fault = [&](const std::string& from, const std::string& to, const std::string& message) {
    kernel_testing::expect_fault(message, [&] { attention_choices_from(replaced(text, from, to), "choices.json"); });
  };
  fault("\"attention\"", "\"others\"", "choices.json: key 'attention' not found");
  fault("\"forward\"", "\"onward\"", "choices.json: unknown attention pass onward");
  fault("\"forward\"", "\"backward\"", "choices.json: key 'd_out' not found");
  fault("\"samples\": 2", "\"samples\": \"2\"", "choices.json: type must be number, but is string");
  fault("}", "", "choices.json: ");
}

TEST(AttentionChoices, NothingIsThereTwice) {
  AttentionChoices choices = some_attention_choices();
  choices.of.erase(std::prev(choices.of.end()));
  const std::string text = to_json(choices);
  const size_t begin = text.find("{\n   \"pass\""), end = text.rfind("}\n ]");
  ASSERT_NE(begin, std::string::npos) << text;
  const std::string problem = text.substr(begin, end + 1 - begin);
  const auto fault = [](const std::string& message, const std::string& json) {
    kernel_testing::expect_fault(message, [&] { attention_choices_from(json, "choices.json"); });
  };
  fault("log_sum_exp by 9 appears twice", replaced(text, problem, problem + "," + problem));
  fault("choices.json: knob 24 appears twice", replaced(text, "     2,\n", "     24,\n"));
}

}  // namespace
}  // namespace shiftron
