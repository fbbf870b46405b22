// What tasks ask: prompts, examples, gold answers. Expected texts are the harness's for the same kind of items.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "evaluate/tasks/preparation.h"
#include "evaluate/tasks/task.h"
#include "evaluate/tasks/task_hashes.h"
#include "evaluate/tasks/wikitext.h"
#include "expect_error.h"
#include "scratch.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

std::string jsonl(const std::vector<Json>& items) {
  std::string text;
  for (const Json& item : items) text += item.dump() + "\n";
  return text;
}

class TaskPrompts : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(data_ / path).parent_path());
    data_.write(path, text);
  }
  LoadedTask load(const std::string& name, const TaskOptions& options = {}) {
    return registry_.load(name, data_.path(), options);
  }
  LoadedTask load_shots(const std::string& name, int64_t count) {
    TaskOptions options;
    options.fewshot = count;
    return load(name, options);
  }

  Scratch data_;
  TaskRegistry registry_;
};

Json winogrande(const std::string& sentence, const std::string& first, const std::string& second,
                const std::string& answer) {
  return {{"sentence", sentence}, {"option1", first}, {"option2", second}, {"answer", answer}};
}

Json hellaswag(const std::string& a, const std::string& b, const std::vector<std::string>& endings, const Json& label) {
  return {{"ind", 1},           {"activity_label", "Home"}, {"ctx_a", a},     {"ctx_b", b},       {"ctx", a + b},
          {"endings", endings}, {"source_id", ""},          {"split", "val"}, {"split_type", ""}, {"label", label}};
}

Json arc(const std::string& question, const std::vector<std::string>& texts, const std::vector<std::string>& labels,
         const std::string& key) {
  return {{"id", "1"}, {"question", question}, {"choices", {{"text", texts}, {"label", labels}}}, {"answerKey", key}};
}

TEST_F(TaskPrompts, lambada_asks_for_the_last_word) {
  put("lambada_openai/test.jsonl",
      jsonl({{{"text", "x said no.\nNobody had found the key"}}, {{"text", "a b "}}, {{"text", "word"}}}));
  const LoadedTask task = load("lambada_openai");
  EXPECT_EQ(task.items[0].requests[0].context, "x said no.\nNobody had found the");
  EXPECT_EQ(task.items[0].requests[0].continuation, " key");
  EXPECT_EQ(task.items[1].requests[0].context, "a b");
  EXPECT_EQ(task.items[1].requests[0].continuation, " ");
  EXPECT_EQ(task.items[2].requests[0].context, "");
  EXPECT_EQ(task.items[2].requests[0].continuation, " word");
}

TEST_F(TaskPrompts, winogrande_scores_the_rest_behind_both_options) {
  put("winogrande/validation.jsonl",
      jsonl({winogrande("Ann thanked Bob after the party, so the host was _.", "Ann", "Bob", "2"),
             winogrande("It was _'s turn  to pay. ", "Lea", "Max", "1")}));
  const LoadedTask task = load("winogrande");
  const Item& item = task.items[0];
  EXPECT_EQ(item.requests[0].context, "Ann thanked Bob after the party, so the host was Ann");
  EXPECT_EQ(item.requests[1].context, "Ann thanked Bob after the party, so the host was Bob");
  EXPECT_EQ(item.requests[0].continuation, " .");
  EXPECT_EQ(item.requests[1].continuation, " .");
  EXPECT_EQ(item.gold, 1);
  EXPECT_EQ(item.target, ".");
  EXPECT_EQ(task.items[1].requests[0].continuation, " 's turn  to pay.");
}

TEST_F(TaskPrompts, an_example_without_an_answer_ends_with_its_question) {
  put("winogrande/validation.jsonl", jsonl({winogrande("So it was _.", "Ann", "Bob", "2")}));
  put("winogrande/train.jsonl",
      jsonl({winogrande("Nobody believed _", "Kim", "Lou", "1"), winogrande("So it was _.", "Ann", "Bob", "2")}));
  EXPECT_EQ(load_shots("winogrande", 1).items[0].requests[0].context, "Nobody believed KimSo it was Ann");
}

TEST_F(TaskPrompts, hellaswag_is_cleaned_in_order) {
  put("hellaswag/validation.jsonl",
      jsonl({hellaswag("How to fix a sink [title] Turn off the water. [step] Find the valve.", "the NEW valve",
                       {"[substeps] sings   loudly.", "b", "c", "d"}, "1"),
             hellaswag("Do this. [step]", "", {"a", "b", "c", "d"}, "0")}));
  const LoadedTask task = load("hellaswag");
  EXPECT_EQ(task.items[0].requests[0].context,
            "Home: How to fix a sink. Turn off the water. Find the valve. The new valve");
  EXPECT_EQ(task.items[0].requests[0].continuation, "  sings  loudly.");
  EXPECT_EQ(task.items[0].choices[0].size(), 15U);
  EXPECT_EQ(task.items[1].requests[0].context, "Home: Do this. ");
  EXPECT_EQ(task.items[0].document.items().begin().key(), "ind");
  EXPECT_EQ(task.items[0].document.at("gold"), 1);
  EXPECT_EQ(hellaswag_text(" [a\nb] c"), "[a\nb] c");
}

TEST_F(TaskPrompts, arc_looks_its_answer_up_among_the_labels) {
  put("arc/ARC-Easy/test.jsonl",
      jsonl({arc("Which?", {"iron", "oxygen", "salt"}, {"1", "2", "3"}, "2"),
             arc(" Spaces stay ", {"a", "b", "c", "d", "e"}, {"A", "B", "C", "D", "E"}, "E")}));
  const LoadedTask task = load("arc_easy");
  EXPECT_EQ(task.items[0].gold, 1);
  EXPECT_EQ(task.items[0].requests.size(), 3U);
  EXPECT_EQ(task.items[1].gold, 4);
  EXPECT_EQ(task.items[1].target, "4");
  EXPECT_EQ(task.items[1].requests[0].context, "Question:  Spaces stay \nAnswer:");
  EXPECT_EQ(task.items[1].requests[4].continuation, " e");
  const LoadedTask letters = load("arc_easy_mcq");
  EXPECT_TRUE(letters.definition.own);
  EXPECT_EQ(letters.items[0].requests[0].context,
            "The following are multiple choice questions (with answers) about science.\n\nWhich?\nA. iron\nB. "
            "oxygen\nC. salt\nAnswer:");
  EXPECT_EQ(letters.items[0].requests[2].continuation, " C");
  EXPECT_EQ(letters.items[1].requests.size(), 5U);
}

TEST_F(TaskPrompts, an_answer_that_is_no_label_is_named) {
  put("arc/ARC-Easy/test.jsonl",
      jsonl({arc("Which?", {"iron", "salt"}, {"A", "B"}, "A"), arc("Which?", {"iron", "salt"}, {"A", "B"}, "C")}));
  EXPECT_ERROR(load("arc_easy"), ExitCode::bad_input, "test.jsonl:2: the right answer is \"C\", not one of A B");
  put("winogrande/validation.jsonl", jsonl({winogrande("So _.", "Ann", "Bob", "")}));
  EXPECT_ERROR(load("winogrande"), ExitCode::bad_input, "use another split");
}

TEST_F(TaskPrompts, mmlu_shows_letters_and_continuation_texts) {
  put("mmlu/dev/abstract_algebra_dev.csv", "What is 2+2?,1,2,3,4,D\n");
  put("mmlu/test/abstract_algebra_test.csv", "\" What is 1+1? \",1,2,\" 3\",4,B\n");
  const std::string description =
      "The following are multiple choice questions (with answers) about abstract algebra.\n\n";
  const std::string question = "What is 1+1?\nA. 1\nB. 2\nC.  3\nD. 4\nAnswer:";
  const LoadedTask shots = load_shots("mmlu_abstract_algebra", 1);
  EXPECT_EQ(shots.items[0].requests[3].context,
            description + "What is 2+2?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: D\n\n" + question);
  EXPECT_EQ(shots.items[0].requests[3].continuation, " D");
  EXPECT_EQ(load("mmlu_abstract_algebra").items[0].requests[0].context, description + question);
  const LoadedTask cloze = load("mmlu_abstract_algebra_continuation");
  EXPECT_EQ(cloze.items[0].requests[0].context,
            "The following are questions (with answers) about abstract algebra.\n\nQuestion: What is 1+1?\nAnswer:");
  EXPECT_EQ(cloze.items[0].requests[2].continuation, "  3");
  EXPECT_EQ(cloze.items[0].choices, (std::vector<std::string>{"1", "2", " 3", "4"}));
  EXPECT_ERROR(load_shots("mmlu_abstract_algebra", 2), ExitCode::bad_input, "contains 1 items, enough for 1");
}

TEST_F(TaskPrompts, cmmlu_asks_in_chinese) {
  const std::string names = ",Question,A,B,C,D,Answer\n";
  put("cmmlu/dev/agronomy.csv", names + "0,一加一？,1,2,3,4,B\n");
  put("cmmlu/test/agronomy.csv", names + "0,\u3000二加二？ ,1, 2,3,4,D\n");
  const LoadedTask task = load_shots("cmmlu_agronomy", 1);
  EXPECT_EQ(task.items[0].requests[0].context,
            "以下是关于农学的单项选择题，请直接给出正确答案的选项。\n\n一加一？\nA. 1\nB. 2\nC. 3\nD. 4\n答案： "
            "B\n\n二加二？\nA. 1\nB.  2\nC. 3\nD. 4\n答案：");
  EXPECT_EQ(task.items[0].gold, 3);
  EXPECT_EQ(task.items[0].document.items().begin().key(), "Question");
  TaskOptions options;
  options.keep_cmmlu_index = true;
  EXPECT_EQ(load("cmmlu_agronomy", options).items[0].document.begin().key(), "Unnamed: 0");
  EXPECT_EQ(load("cmmlu_agronomy", options).items[0].document.at("Unnamed: 0"), 0);
}

TEST_F(TaskPrompts, math_generates_until_the_next_problem) {
  put("math500/test.jsonl", jsonl({{{"problem", "What?"},
                                    {"solution", "So $\\boxed{[-2,7]}$."},
                                    {"answer", "other"},
                                    {"subject", "Algebra"},
                                    {"level", 2},
                                    {"unique_id", "x"}}}));
  const LoadedTask task = load("hendrycks_math500");
  const Item& item = task.items[0];
  EXPECT_EQ(item.requests[0].kind, RequestKind::generate);
  EXPECT_EQ(item.requests[0].context, "Problem: What?\nAnswer:");
  EXPECT_EQ(item.requests[0].generation.until, std::vector<std::string>{"Problem:"});
  EXPECT_EQ(item.requests[0].generation.most_tokens, 256);
  EXPECT_EQ(item.answers, std::vector<std::string>{"[-2,7]"});
  EXPECT_EQ(item.target, "[-2, 7]");
  EXPECT_EQ(
      item.document.dump(),
      R"({"problem":"What?","solution":"So $\\boxed{[-2,7]}$.","answer":"[-2,7]","subject":"Algebra","level":2,"unique_id":"x"})");
  TaskOptions options;
  options.most_tokens = 9;
  const GenerationRules stated = load("hendrycks_math500", options).items[0].requests[0].generation;
  EXPECT_EQ(stated.most_tokens, 9);
  EXPECT_TRUE(stated.states_most_tokens);
  EXPECT_FALSE(item.requests[0].generation.states_most_tokens);
  EXPECT_ERROR(load_shots("hendrycks_math500", 2), ExitCode::bad_input, "has no examples other than its questions");
}

TEST_F(TaskPrompts, minervas_examples_come_from_a_checked_file) {
  put("math500/test.jsonl", jsonl({{{"problem", "What?"},
                                    {"solution", "So $\\boxed{7}$."},
                                    {"answer", "7"},
                                    {"subject", "Algebra"},
                                    {"level", 2},
                                    {"unique_id", "x"}}}));
  EXPECT_ERROR(load("minerva_math500"), ExitCode::bad_input, "minerva_math/shots.jsonl");
  put("minerva_math/shots.jsonl",
      jsonl({{{"problem", "Two?"}, {"solution", "It is two."}}, {{"problem", "Three?"}, {"solution", "Three."}}}));
  EXPECT_ERROR(load_shots("minerva_math500", 1), ExitCode::bad_input,
               "these are not the examples of minerva_math500 3.1");
  EXPECT_ERROR(load("minerva_math500"), ExitCode::bad_input, "contains 2 items, enough for 2");
  TaskDefinition own = registry_.definition("minerva_math500");
  own.shots_digest = "c18ab48f6d2338092457051ba0fd52b9ec13ee0029e8c074b294373cf8322f8b";
  TaskOptions options;
  options.fewshot = 1;
  EXPECT_EQ(load_task(own, data_.path(), options).items[0].requests[0].context,
            "Problem:\nTwo?\n\nSolution: It is two.\n\nProblem:\nWhat?\n\nSolution:");
}

TEST_F(TaskPrompts, wikitext_is_measured_before_and_asked_after) {
  const std::string page =
      " = A Title = \n \n The cat @-@ like thing cost 1 @,@ 000 ( or 3 @.@ 5 ) ; it 's \" fine \" . \n";
  put("wikitext/test.jsonl", jsonl({{{"page", page}}}));
  const LoadedTask task = load_shots("wikitext", 5);
  EXPECT_EQ(task.fewshot, 0);
  EXPECT_EQ(task.items[0].requests[0].context,
            " = A Title =\n\nThe cat-like thing cost 1,000 (or 3.5); it's \"fine\".\n");
  EXPECT_EQ(task.items[0].words, 28);
  EXPECT_EQ(task.items[0].bytes, 90);
  EXPECT_EQ(detokenized_wikitext("( [ { \" ' a ' \" } ] )"), "([{\"'a'\"}])");
}

TEST_F(TaskPrompts, gsm8k_shows_five_examples_unless_told_otherwise) {
  std::vector<Json> items;
  for (int i = 0; i < 6; ++i) items.push_back({{"question", "Q" + std::to_string(i)}, {"answer", "#### 1"}});
  put("gsm8k/test.jsonl", jsonl(items));
  put("gsm8k/train.jsonl", jsonl(items));
  for (const int64_t shots : {5, 0}) {
    const LoadedTask task = shots == 5 ? load("gsm8k") : load_shots("gsm8k", shots);
    EXPECT_EQ(task.fewshot, shots);
    const std::string& context = task.items[0].requests[0].context;
    int64_t found = 0;
    for (size_t at = 0; (at = context.find("#### 1\n\n", at)) != std::string::npos; ++at) ++found;
    EXPECT_EQ(found, shots) << context;
  }
}

TEST_F(TaskPrompts, examples_are_drawn_for_one_item_after_the_other) {
  std::vector<Json> pool, items;
  for (int i = 0; i < 20; ++i) pool.push_back(arc("pool " + std::to_string(i), {"x", "y"}, {"A", "B"}, "A"));
  for (int i = 0; i < 3; ++i) items.push_back(arc("item", {"x", "y"}, {"A", "B"}, "A"));
  put("arc/ARC-Easy/train.jsonl", jsonl(pool));
  put("arc/ARC-Easy/test.jsonl", jsonl(items));
  const auto shots = [](int64_t a, int64_t b) {
    return "Question: pool " + std::to_string(a) + "\nAnswer: x\n\nQuestion: pool " + std::to_string(b) +
           "\nAnswer: x\n\nQuestion: item\nAnswer:";
  };
  const LoadedTask task = load_shots("arc_easy", 2);
  EXPECT_EQ(task.items[0].requests[0].context, shots(14, 3));
  EXPECT_EQ(task.items[1].requests[0].context, shots(0, 2));
  EXPECT_EQ(task.items[2].requests[0].context, shots(18, 1));
  TaskOptions two{.limit = 2};
  two.fewshot = 2;
  EXPECT_EQ(load("arc_easy", two).items[1].requests[0].context, shots(0, 2));
}

TEST_F(TaskPrompts, an_item_is_left_out_of_its_own_examples) {
  std::vector<Json> pool;
  for (int i = 0; i < 20; ++i) pool.push_back(winogrande("item " + std::to_string(i) + " _.", "a", "b", "1"));
  put("winogrande/train.jsonl", jsonl(pool));
  put("winogrande/validation.jsonl", jsonl({pool[0], pool[1], pool[2]}));
  const LoadedTask task = load_shots("winogrande", 2);
  const auto shot = [](int64_t number) { return "item " + std::to_string(number) + " a .\n\n"; };
  EXPECT_EQ(task.items[0].requests[0].context, shot(14) + shot(3) + "item 0 a");
  EXPECT_EQ(task.items[1].requests[0].context, shot(2) + shot(18) + "item 1 a");
  EXPECT_EQ(task.items[2].requests[0].context, shot(3) + shot(11) + "item 2 a");
}

TEST_F(TaskPrompts, a_pool_of_copies_of_the_item_has_too_few_examples) {
  const Json item = winogrande("item _.", "a", "b", "1"), other = winogrande("other _.", "a", "b", "1");
  put("winogrande/validation.jsonl", jsonl({item}));
  put("winogrande/train.jsonl", jsonl({item, item, item, other}));
  EXPECT_ERROR(load_shots("winogrande", 2), ExitCode::bad_input, "2 examples are needed, but only 1 items of ");
  put("winogrande/train.jsonl", jsonl({item, item, other, other}));
  EXPECT_EQ(load_shots("winogrande", 2).items[0].requests[0].context, "other a .\n\nother a .\n\nitem a");
}

TEST_F(TaskPrompts, a_limit_counts_items_or_is_a_share) {
  std::vector<Json> items(7, Json{{"text", "a b"}});
  put("lambada_openai/test.jsonl", jsonl(items));
  const auto count = [&](double limit) { return load("lambada_openai", {.limit = limit}).items.size(); };
  EXPECT_EQ(count(0), 7U);
  EXPECT_EQ(count(3), 3U);
  EXPECT_EQ(count(0.5), 4U);
  EXPECT_EQ(count(1), 1U);
  EXPECT_EQ(count(100), 7U);
  EXPECT_EQ(load("lambada_openai", {.limit = 2}).original_items, 7);
  EXPECT_ERROR(count(-1), ExitCode::bad_input, "--limit -1");
}

TEST_F(TaskPrompts, hashes_are_of_document_prompt_and_target) {
  Item item;
  item.document = {{"text", "a b"}};
  item.target = " b";
  item.requests = {{RequestKind::log_likelihood, "a", " b"}};
  EXPECT_EQ(hashes_of(item).document.substr(0, 8), "5259bdb2");
  EXPECT_EQ(task_hash({&item, 1}), "b579025e70997b068b52a7cb7b849ea14644477acfdce4505882f32d77510a30");
}

}  // namespace
}  // namespace shiftron
