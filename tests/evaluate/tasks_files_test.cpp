// Files of items: formats, malformed lines, missing files; names of tasks; tasks defined by users.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "config/task_names.h"
#include "evaluate/task_data.h"
#include "evaluate/tasks/datasets.h"
#include "evaluate/tasks/records.h"
#include "evaluate/tasks/task.h"
#include "evaluate/tasks/task_hashes.h"
#include "evaluate/tasks/text_template.h"
#include "expect_error.h"
#include "scratch.h"

namespace shiftron {
namespace {

using testing::kTaskData;

TEST(Records, csv_cells_hold_line_ends_quotes_and_commas) {
  Scratch scratch;
  const auto rows =
      read_csv(scratch.write("a.csv", "\xEF\xBB\xBFq,\"two\nlines, \"\"and\"\" a comma\",\r\n\n\"\",\" b\"c,x\"y\n"));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].cells, (std::vector<std::string>{"q", "two\nlines, \"and\" a comma", ""}));
  EXPECT_EQ(rows[1].cells, (std::vector<std::string>{"", " bc", "x\"y"}));
  EXPECT_EQ(rows[1].where, scratch / "a.csv" + ":4");
  EXPECT_EQ(read_csv(scratch.write("b.csv", "a,b")).at(0).cells.size(), 2U);
  EXPECT_EQ(read_csv(scratch.write("c.csv", "\"\"\n")).at(0).cells.size(), 1U);
  EXPECT_TRUE(read_csv(scratch.write("d.csv", "")).empty());
}

TEST(Records, malformed_files_are_named_with_their_line) {
  Scratch scratch;
  EXPECT_ERROR(read_csv(scratch.write("a.csv", "a,b\nc,\"d\n\n")), ExitCode::bad_input,
               "a.csv:2: a cell's opening quote is never closed");
  EXPECT_ERROR(read_csv_records(scratch.write("b.csv", "x,y\n1,2\n1,2,3\n")), ExitCode::bad_input, "b.csv:3: 3 cells");
  EXPECT_ERROR(read_jsonl(scratch.write("c.jsonl", "{}\n\n{\n")), ExitCode::bad_input, "c.jsonl:3: not JSON");
  EXPECT_ERROR(read_jsonl(scratch.write("d.jsonl", "[1]\n")), ExitCode::bad_input,
               "d.jsonl:1: a JSON array, not an object");
  EXPECT_ERROR(read_lines(scratch.write("e.txt", "a\nb\xFF\n")), ExitCode::bad_input, "e.txt:2: not UTF-8");
  EXPECT_ERROR(read_jsonl(scratch.write("f.jsonl", "PAR1....")), ExitCode::bad_input, "launch/benchmarks-data");
  EXPECT_ERROR(read_jsonl(scratch.write("f g.jsonl", "PAR1....")), ExitCode::bad_input,
               "launch/benchmarks-data OUTPUT.jsonl '" + scratch.path() + "/f g.jsonl'");
  EXPECT_ERROR(read_json(scratch.write("g.json", "[]")), ExitCode::bad_input, "g.json: a JSON array");
  EXPECT_ERROR(read_jsonl(scratch / "none.jsonl"), ExitCode::bad_input, "none.jsonl");
  const std::string deep = "{\"a\": " + std::string(65, '[') + std::string(65, ']') + "}\n";
  EXPECT_ERROR(read_jsonl(scratch.write("h.jsonl", "{}\n" + deep)), ExitCode::bad_input,
               "h.jsonl:2: nested deeper than 64");
  EXPECT_ERROR(read_json(scratch.write("i.json", deep)), ExitCode::bad_input, "i.json: nested deeper than 64");
  EXPECT_EQ(read_jsonl(scratch.write("j.jsonl", "{\"a\": \"" + std::string(99, '[') + "\"}\n")).size(), 1U);
}

// As Python reads them; 1e+20 is none, nor is what stands in a text.
TEST(Records, whole_numbers_keep_all_their_digits) {
  Scratch scratch;
  const std::string line =
      R"({"a": 123456789012345678901234567890, "b": -9223372036854775809,"c":[18446744073709551616],)"
      R"("d": 18446744073709551615, "e": -9223372036854775808, "f": 1e20,)"
      R"("h": 0.12345678901234567890123, "i": 100000000000000000000, "g": "\\\"18446744073709551616, "})";
  const auto value = read_jsonl(scratch.write("a.jsonl", line)).at(0).value;
  EXPECT_EQ(TextTemplate("{a} {b} {c.0} {d} {e} {f}{g}{h} {i}", "a task").of(value, "a line"),
            "123456789012345678901234567890 -9223372036854775809 18446744073709551616 18446744073709551615 "
            "-9223372036854775808 1e+20\\\"18446744073709551616, 0.12345678901234568 100000000000000000000");
  EXPECT_ERROR(read_jsonl(scratch.write("b.jsonl", R"({"a": 00123456789012345678901})")), ExitCode::bad_input,
               "not JSON");
  EXPECT_ERROR(read_jsonl(scratch.write("c.jsonl", R"({"a": 123456789012345678901-})")), ExitCode::bad_input,
               "not JSON");
}

TEST(Records, lines_end_with_or_without_carriage_return) {
  Scratch scratch;
  const auto records = read_lines(scratch.write("a.txt", "one\r\n two \n\nlast"));
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[0].value.at("text"), "one");
  EXPECT_EQ(records[1].value.at("text"), " two ");
  EXPECT_EQ(records[3].where, scratch / "a.txt" + ":4");
}

class TaskFiles : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(data_ / path).parent_path());
    data_.write(path, text);
  }
  void load(const std::string& name) { registry_.load(name, data_.path()); }

  Scratch data_;
  TaskRegistry registry_;
};

TEST_F(TaskFiles, a_missing_file_is_named_with_what_to_do) {
  EXPECT_ERROR(registry_.load("hellaswag", data_ / "none"), ExitCode::bad_input, "is not a directory");
  EXPECT_ERROR(load("hellaswag"), ExitCode::bad_input, data_.path() + "/hellaswag/hellaswag_val.jsonl");
  EXPECT_ERROR(load("hellaswag"), ExitCode::bad_input, "the task hellaswag needs the split validation");
  EXPECT_ERROR(load("hellaswag"), ExitCode::bad_input, "Rowan/hellaswag as JSONL");
}

// Those of another split or part would silently be read as this one.
TEST_F(TaskFiles, a_missing_file_is_made_of_parquet_files_of_its_own_split_and_part) {
  const std::string ask = "there are Parquet files; convert those of this split: launch/benchmarks-data ";
  const auto told = [&](const std::string& file) { return data_.path() + "/" + file; };
  put("hellaswag/data/test-00000-of-00001.parquet", "PAR1");
  EXPECT_ERROR(load("hellaswag"), ExitCode::bad_input, ask + told("hellaswag/validation.jsonl INPUT.parquet"));
  const std::string of_two = "hellaswag/data/validation-0000";
  put(of_two + "1-of-00002.parquet", "PAR1");
  put(of_two + "0-of-00002.parquet", "PAR1");
  EXPECT_ERROR(load("hellaswag"), ExitCode::bad_input,
               "validation-00000-of-00002.parquet exists; convert it: launch/benchmarks-data " +
                   told("hellaswag/validation.jsonl ") + told(of_two + "0-of-00002.parquet ") +
                   told(of_two + "1-of-00002.parquet"));
  put("arc/ARC-Challenge/test-00000-of-00001.parquet", "PAR1");
  EXPECT_ERROR(load("arc_easy"), ExitCode::bad_input, ask + told("arc/ARC-Easy/test.jsonl INPUT.parquet"));
  put("arc/ARC-Easy/test-00000-of-00001.parquet", "PAR1");
  EXPECT_ERROR(load("arc_easy"), ExitCode::bad_input,
               "launch/benchmarks-data " + told("arc/ARC-Easy/test.jsonl ") + told("arc/ARC-Easy/test-00000"));
  put("mmlu/all/dev-00000-of-00001.parquet", "PAR1");
  put("mmlu/all/test-00000-of-00001.parquet", "PAR1");
  EXPECT_ERROR(load("mmlu_anatomy"), ExitCode::bad_input,
               "launch/benchmarks-data " + told("mmlu/all/test.jsonl ") + told("mmlu/all/test-00000"));
  put("lambada_openai/de/test.parquet", "PAR1");
  put("lambada_openai/en/test.parquet", "PAR1");
  EXPECT_ERROR(load("lambada_openai"), ExitCode::bad_input, ask + told("lambada_openai/test.jsonl INPUT.parquet"));
}

TEST_F(TaskFiles, malformed_items_are_named_with_line_and_column) {
  put("hellaswag/validation.jsonl", "\n{\"ind\": \"x\"}\n");
  EXPECT_ERROR(load("hellaswag"), ExitCode::bad_input, "validation.jsonl:2: the column ind is not a whole number");
  put("hellaswag/validation.jsonl", "{\"ind\": 1, \"label\": \"0\"}\n");
  EXPECT_ERROR(load("hellaswag"), ExitCode::bad_input, "no column activity_label (it has: ind, label)");
  put("arc/ARC-Easy/test.jsonl",
      R"({"id": "1", "question": "q", "choices": {"text": ["a"], "label": ["A", "B"]}, "answerKey": "A"})");
  EXPECT_ERROR(load("arc_easy"), ExitCode::bad_input,
               "the column choices is not an object with the lists text and label");
  put("arc/ARC-Challenge/ARC-Challenge-Test.jsonl", R"({"id": "1", "question": {"choices": []}, "answerKey": "A"})");
  EXPECT_ERROR(load("arc_challenge"), ExitCode::bad_input, "ARC-Challenge-Test.jsonl:1: not an item of ARC");
  put("mmlu/test/anatomy_test.csv", "q,a,b,c,d,A\nq,a,b,c,A\n");
  EXPECT_ERROR(load("mmlu_anatomy"), ExitCode::bad_input, "anatomy_test.csv:2: 5 cells");
  put("mmlu/test/anatomy_test.csv", "q,a,b,c,d,E\n");
  EXPECT_ERROR(load("mmlu_anatomy"), ExitCode::bad_input, "the answer is \"E\", not A, B, C or D");
  put("mmlu/all/test.jsonl", R"({"question": "q", "subject": "anatomy", "choices": ["a", "b"], "answer": 4})");
  EXPECT_ERROR(load("mmlu_virology"), ExitCode::bad_input, "no items with the subject virology");
  EXPECT_ERROR(load("mmlu_anatomy"), ExitCode::bad_input, "{choices.2}: no 2 (a list of 2, counted from 0)");
  put("math/algebra/test.jsonl", R"({"problem": "p", "level": "1", "type": "t", "solution": "none"})");
  EXPECT_ERROR(load("hendrycks_math_algebra"), ExitCode::bad_input, "test.jsonl:1: the solution has no boxed answer");
  put("math/test/geometry/x.json", "{}");
  EXPECT_ERROR(load("hendrycks_math_geometry"), ExitCode::bad_input, "x.json: files of MATH are named <number>.json");
  put("wikitext/test.jsonl", "\n");
  EXPECT_ERROR(load("wikitext"), ExitCode::bad_input, "contains no items");
}

TEST_F(TaskFiles, columns_are_put_in_the_hubs_order_and_others_left_out) {
  put("winogrande/validation.jsonl",
      R"({"qID": "x", "answer": 2, "option2": "b", "option1": "a", "sentence": "It is _."})");
  EXPECT_EQ(registry_.load("winogrande", data_.path()).items[0].document.dump(),
            R"({"sentence":"It is _.","option1":"a","option2":"b","answer":"2"})");
}

TEST_F(TaskFiles, all_subjects_of_mmlu_may_lie_in_one_file) {
  std::string all;
  for (const char* subject : {"sociology", "philosophy"})
    all += Scratch::read(kTaskData + "/hub/mmlu/" + subject + "/test.jsonl");
  put("mmlu/all/test.jsonl", all);
  EXPECT_EQ(task_hash(registry_.load("mmlu_philosophy", data_.path()).items),
            task_hash(registry_.load("mmlu_philosophy", kTaskData + "/hub").items));
}

TEST_F(TaskFiles, a_changed_item_changes_the_hash) {
  const std::string text = Scratch::read(kTaskData + "/hub/wikitext/test.jsonl");
  put("wikitext/test.jsonl", text);
  const std::string before = task_hash(registry_.load("wikitext", data_.path()).items);
  put("wikitext/test.jsonl", text.substr(0, text.find("cat")) + "dog" + text.substr(text.find("cat") + 3));
  EXPECT_NE(task_hash(registry_.load("wikitext", data_.path()).items), before);
}

TEST(TaskRegistry, built_in_tasks_are_complete) {
  TaskRegistry registry;
  const auto count = [&](const std::string& name) { return registry.select({name}).tasks.size(); };
  EXPECT_EQ(count("mmlu"), 57U);
  EXPECT_EQ(count("mmlu_stem"), 19U);
  EXPECT_EQ(count("mmlu_other"), 13U);
  EXPECT_EQ(count("mmlu_social_sciences"), 12U);
  EXPECT_EQ(count("mmlu_humanities"), 13U);
  EXPECT_EQ(count("mmlu_continuation"), 57U);
  EXPECT_EQ(count("cmmlu"), 67U);
  EXPECT_EQ(count("hendrycks_math"), 7U);
  EXPECT_EQ(count("minerva_math"), 7U);
  std::set<std::string> names;
  for (const TaskDefinition& task : built_in_tasks()) {
    EXPECT_TRUE(names.insert(task.name).second) << task.name;
    EXPECT_FALSE(task.metrics.empty()) << task.name;
    EXPECT_FALSE(task.help.empty()) << task.name;
    EXPECT_FALSE(split_paths(task.dataset, task.part, task.split).empty()) << task.name;
  }
  EXPECT_EQ(names.size(), 16U + 2 * 57 + 67 + 2 * 8 + 1);
}

TEST(TaskRegistry, groups_come_with_their_groups) {
  TaskRegistry registry;
  const Selection selection = registry.select({"mmlu", "mmlu_anatomy", "arc_easy", "ai2_arc"});
  EXPECT_EQ(selection.tasks.size(), 59U);
  ASSERT_EQ(selection.groups.size(), 5U);
  EXPECT_EQ(selection.groups[0].definition.name, "mmlu");
  EXPECT_EQ(selection.groups[0].tasks.size(), 57U);
  EXPECT_EQ(selection.groups[0].groups,
            (std::vector<std::string>{"mmlu_stem", "mmlu_other", "mmlu_social_sciences", "mmlu_humanities"}));
  EXPECT_EQ(selection.groups[1].definition.alias, "stem");
  EXPECT_EQ(selection.groups[1].tasks.size(), 19U);
  const Selection cloze = registry.select({"mmlu_continuation"});
  EXPECT_EQ(cloze.groups[3].definition.name, "mmlu_continuation::social sciences");
  EXPECT_EQ(cloze.groups[0].definition.alias, "mmlu (continuation)");
  EXPECT_EQ(registry.select({"mmlu_stem", "mmlu"}).groups.size(), 5U);
}

TEST(TaskRegistry, kinds_have_the_harnesss_names) {
  TaskRegistry registry;
  EXPECT_EQ(harness_name(registry.definition("winogrande").kind), "multiple_choice");
  EXPECT_EQ(harness_name(registry.definition("lambada_openai").kind), "loglikelihood");
  EXPECT_EQ(harness_name(registry.definition("wikitext").kind), "loglikelihood_rolling");
  EXPECT_EQ(harness_name(registry.definition("hendrycks_math500").kind), "generate_until");
}

TEST(TaskRegistry, unknown_names_are_told_together) {
  TaskRegistry registry;
  EXPECT_ERROR(registry.select({"helaswag", "mmlu", "cmmlu_agronmy"}), ExitCode::bad_input,
               "helaswag; did you mean hellaswag?\n  cmmlu_agronmy; did you mean cmmlu_agronomy?");
  EXPECT_ERROR(registry.select({}), ExitCode::bad_input, "--tasks list");
}

TEST(TaskRegistry, the_list_says_where_files_go) {
  const std::vector<ListedTask> all = TaskRegistry().list();
  const auto find = [&](const std::string& name) {
    return *std::find_if(all.begin(), all.end(), [&](const ListedTask& task) { return task.name == name; });
  };
  EXPECT_EQ(find("mmlu").folder, "mmlu");
  EXPECT_EQ(find("mmlu").files[0], "mmlu/<part>/test.jsonl");
  EXPECT_EQ(find("winogrande").dataset, "allenai/winogrande (winogrande_xl)");
  EXPECT_EQ(find("arc_easy_mcq").own, true);
  EXPECT_EQ(find("minerva_math500").files.back(), "minerva_math/shots.jsonl");
  EXPECT_LT(all.size(), 48U);
}

TEST(TaskRegistry, the_document_names_everything) {
  const std::string document = Scratch::read(std::string(SHIFTRON_SOURCE_DIR) + "/docs/evaluation.md");
  std::vector<std::string> names;
  for (const DatasetHelp& dataset : datasets()) {
    names.push_back("\n| " + dataset.name + " | " + dataset.hub.substr(0, dataset.hub.find(' ')));
  }
  for (const FilterHelp& filter : template_filters()) names.emplace_back(filter.name);
  for (const Metric& metric : known_metrics()) names.push_back(metric.name);
  for (const ListedTask& task : TaskRegistry().list()) {
    if (!task.name.starts_with("mmlu_continuation::")) names.push_back(task.name);
  }
  for (const std::string& name : names) EXPECT_NE(document.find(name), std::string::npos) << name;
}

TEST(TextTemplate, columns_parts_and_filters) {
  const nlohmann::ordered_json item = {
      {"q", " a_b c "}, {"n", 3}, {"list", {"x", "y"}}, {"in", {{"t", "deep"}}}, {"none", nullptr}};
  const auto fill = [&](const std::string& text) { return TextTemplate(text, "task").of(item, "here"); };
  EXPECT_EQ(fill("{{{q|strip}}} {n} {list.1} {in.t}"), "{a_b c} 3 y deep");
  EXPECT_EQ(fill("{q|before_blank}|{q|after_blank|strip}|{q|strip|last_word}|{q|strip|words_but_last}"),
            " a|b c|c|a_b");
  EXPECT_EQ(fill("{list|lettered}"), "A. x\nB. y");
  EXPECT_EQ(ItemValue("list|letters", "task").texts_of(item, "here"), (std::vector<std::string>{"A", "B"}));
  EXPECT_ERROR(fill("{x}"), ExitCode::bad_input, "here: {x}: no x (it has q, n, list, in, none)");
  EXPECT_ERROR(fill("{list}"), ExitCode::bad_input, "{list} is a JSON array");
  EXPECT_ERROR(fill("{none}"), ExitCode::bad_input, "{none} is a JSON null");
  EXPECT_ERROR(fill("{n|strip}"), ExitCode::bad_input, "strip takes a text, not a number");
  EXPECT_ERROR(fill("{q|stripp}"), ExitCode::bad_input, "no filter stripp; did you mean strip?");
  EXPECT_ERROR(fill("{q"), ExitCode::bad_input, "has a single {");
  EXPECT_ERROR(fill("{}"), ExitCode::bad_input, "names no column");
  EXPECT_ERROR(ItemValue("q", "task").texts_of(item, "here"), ExitCode::bad_input, "q is not a list of texts");
}

TEST_F(TaskFiles, more_examples_than_there_are_items_are_refused) {
  for (const char* task : {"winogrande", "arc_easy"}) {
    for (const int64_t fewshot : {8L, INT64_MAX}) {
      EXPECT_ERROR(registry_.load(task, kTaskData + "/hub", {.fewshot = fewshot}), ExitCode::bad_input,
                   "not for " + std::to_string(fewshot));
    }
  }
}

class UserTask : public ::testing::Test {
 protected:
  Scratch folder_;
  TaskRegistry registry_;
};

TEST_F(UserTask, asks_what_its_file_says) {
  folder_.write("quiz.csv", "question,a,b,right\n\"Capital of\nFrance?\",Lyon,Paris,b\nAnd?,1,2,a\n");
  folder_.write("more.jsonl", R"({"question": "Two?", "a": "x", "b": "y", "right": "a"})");
  const std::string path = folder_.write("quiz.json", R"({
    "name": "capitals", "kind": "multiple_choice", "help": "capitals of countries",
    "files": {"test": "quiz.csv", "examples": "more.jsonl"}, "shots_from": "examples", "shots": 1, "draw": "first",
    "context": "Q: {question}\nA:", "choices": ["{a}", "{b}"], "gold": "{right}", "labels": ["a", "b"],
    "metrics": ["acc", "acc_bytes"]})");
  EXPECT_EQ(registry_.select({path, "arc_easy"}).tasks, (std::vector<std::string>{"capitals", "arc_easy"}));
  const LoadedTask task = registry_.load("capitals", folder_.path());
  EXPECT_EQ(task.fewshot, 1);
  EXPECT_EQ(task.items[0].requests[1].context, "Q: Two?\nA: x\n\nQ: Capital of\nFrance?\nA:");
  EXPECT_EQ(task.items[0].requests[1].continuation, " Paris");
  EXPECT_EQ(task.items[0].gold, 1);
  EXPECT_EQ(task.definition.metrics[1].name, "acc_bytes");
  EXPECT_TRUE(task.definition.own);
}

TEST_F(UserTask, shows_no_item_its_own_answer) {
  std::string lines;
  for (int i = 0; i < 6; ++i)
    lines += fmt::format(R"({{"q": "question {}", "a": "x{}"}})"
                         "\n",
                         i, i);
  folder_.write("q.jsonl", lines);
  const auto file = [&](const std::string& files, const std::string& more) {
    return folder_.write(
        "q.json", R"({"name": "q", "kind": "generate", "context": "Q: {q}\nA:", "target": "{a}", "files": {)" + files +
                      R"(}, "shots_from": )" + more + R"(, "shots": 3})");
  };
  for (const auto& [files, split] : {std::pair{R"("test": "q.jsonl")", R"("test")"},
                                     std::pair{R"("test": "q.jsonl", "shown": "./q.jsonl")", R"("shown")"}}) {
    TaskRegistry registry;
    registry.select({file(files, split)});
    for (const Item& item : registry.load("q", folder_.path()).items) {
      const std::string &context = item.requests[0].context, question = item.document["q"];
      EXPECT_EQ(context.find(question), context.rfind(question)) << context;
    }
    for (const char* draw : {"first", "sampled"}) {
      const std::string stated = split + std::string(R"(, "draw": ")") + draw + '"';
      EXPECT_ERROR(TaskRegistry().select({file(files, stated)}), ExitCode::bad_input,
                   std::string("draw \"") + draw + "\" would show items their own answers");
    }
  }
}

TEST_F(UserTask, an_example_whose_choice_is_empty_ends_as_others) {
  folder_.write("more.jsonl", R"({"q": "s", "o": ["", "b"], "r": 0})");
  folder_.write("few.jsonl", R"({"q": "t", "o": ["a", "b"], "r": 0})");
  registry_.select({folder_.write("few.json", R"({"name": "few", "kind": "multiple_choice", "shots": 1, "draw": "first",
    "files": {"test": "few.jsonl", "more": "more.jsonl"}, "shots_from": "more", "context": "Q: {q}\nA:", "choices": "o",
    "gold": "{r}"})")});
  EXPECT_EQ(registry_.load("few", folder_.path()).items[0].requests[0].context, "Q: s\nA: \n\nQ: t\nA:");
}

TEST_F(UserTask, a_label_behind_the_choices_is_none_of_them) {
  folder_.write("few.jsonl", R"({"options": ["x", "y"], "right": "C"})");
  const std::string path = folder_.write("few.json", R"({"name": "few", "kind": "multiple_choice",
    "files": {"test": "few.jsonl"}, "context": "Q:", "choices": "options", "gold": "{right}", "labels": ["A", "B", "C"]})");
  registry_.select({path});
  EXPECT_ERROR(registry_.load("few", folder_.path()), ExitCode::bad_input,
               "the right answer is \"C\", not one of A B of its 2 choices");
}

TEST_F(UserTask, may_take_a_dataset_and_generate) {
  const std::string path =
      folder_.write("mine.json", R"({"name": "mine", "kind": "generate", "dataset": "math500", "context": "{problem}",
    "target": "{answer}", "until": ["\n"], "most_tokens": 5, "metrics": ["math_match"]})");
  registry_.select({path});
  const LoadedTask task = registry_.load("mine", kTaskData + "/hub");
  EXPECT_EQ(task.items[0].answers, std::vector<std::string>{"as given"});
  EXPECT_EQ(task.items[0].requests[0].generation.until, std::vector<std::string>{"\n"});
  EXPECT_EQ(task.items[0].requests[0].generation.most_tokens, 5);
  EXPECT_TRUE(task.items[0].requests[0].generation.states_most_tokens);
}

TEST_F(UserTask, faults_are_told_together) {
  const std::string path =
      folder_.write("bad.json", R"({"name": "a b", "kind": "multiple", "files": {"train": "x"}, "contextt": "",
    "shots": -1, "draw": "any", "metrics": ["accuracy", "acc", "acc"], "gold": "{x|foo}"})");
  for (const char* part :
       {"bad.json is invalid:", "name must consist of letters", "kind is \"multiple\"", "files has no file for test",
        "contextt is not a key of a task file; did you mean context?", "shots must be a whole number",
        "draw is \"any\"", "metrics names accuracy; multiple_choice has acc, acc_norm, acc_bytes",
        "metrics names acc twice", "gold {x|foo}: no filter foo", "docs/evaluation.md has an example"}) {
    EXPECT_ERROR(registry_.select({path}), ExitCode::bad_input, part);
  }
  const std::string taken =
      folder_.write("taken.json", R"({"name": "arc_easy", "kind": "rolling", "files": {"test": "x.txt"}})");
  EXPECT_ERROR(registry_.select({taken}), ExitCode::bad_input, "a task arc_easy already exists");
}

TEST_F(UserTask, keys_that_a_kind_does_not_read_are_refused) {
  const auto refused = [&](const std::string& kind, const std::string& keys, const std::string& part) {
    const std::string path =
        folder_.write("keys.json", "{\"name\": \"keys\", \"files\": {\"test\": \"x.jsonl\"}, \"kind\": \"" + kind +
                                       "\", " + keys + "}");
    EXPECT_ERROR(TaskRegistry().select({path}), ExitCode::bad_input, part);
  };
  const std::string choices = R"("choices": "options", "gold": "0")", asked = R"("context": "{q}", "target": " {a}")";
  for (const char* key : {"context", "description", "delimiter", "shots_from", "gold"}) {
    refused("rolling", '"' + std::string(key) + R"(": "test")",
            std::string(key) + " has no effect in a task of kind rolling");
  }
  refused("rolling", R"("shots": 2)", "shots has no effect in a task of kind rolling");
  refused("log_likelihood", asked + R"(, "until": ["."])", "until has no effect in a task of kind log_likelihood");
  refused("generate", asked + ", " + choices, "choices has no effect in a task of kind generate");
  refused("multiple_choice", asked + ", " + choices,
          "target has no effect in a task of kind multiple_choice with choices");
  refused("multiple_choice", asked + R"(, "contexts": ["a", "b"], "gold": "0")",
          "context has no effect in a task of kind multiple_choice with contexts");
  refused("multiple_choice", R"("context": "{q}", "shot_target": "x", )" + choices, "shot_target has no effect");
}

TEST_F(UserTask, perplexity_of_any_file) {
  const std::string text = folder_.write("my text.txt", "One\ntwo  three\n");
  const std::string lines = folder_.write("docs.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"é\"}\n");
  EXPECT_EQ(registry_.select({"perplexity:" + text, "perplexity:" + lines}).tasks,
            (std::vector<std::string>{"perplexity_my_text", "perplexity_docs"}));
  const LoadedTask whole = registry_.load("perplexity_my_text", folder_.path());
  ASSERT_EQ(whole.items.size(), 1U);
  EXPECT_EQ(whole.items[0].requests[0].kind, RequestKind::rolling);
  EXPECT_EQ(whole.items[0].requests[0].context, "One\ntwo  three\n");
  EXPECT_EQ(whole.items[0].words, 4);
  EXPECT_EQ(whole.definition.metrics.size(), 3U);
  EXPECT_EQ(registry_.load("perplexity_docs", folder_.path()).items[1].bytes, 2);
  EXPECT_ERROR(registry_.load("perplexity_docs", folder_.path(), {.limit = -1}), ExitCode::bad_input, "--limit");
}

TEST_F(UserTask, perplexities_of_files_of_one_name_have_names_of_their_own) {
  std::filesystem::create_directories(folder_ / "en");
  std::filesystem::create_directories(folder_ / "de");
  std::vector<std::string> asked;
  for (const char* name :
       {"en/test.txt", "de/test.txt", "de/test.jsonl", "日本.txt", "中国.txt", "a b.txt", "a_b.txt", "x.txt"}) {
    folder_.write(name, name);
    asked.push_back("perplexity:" + (folder_ / name));
  }
  asked.push_back(asked.back());
  const std::vector<std::string> tasks = registry_.select(asked).tasks;
  ASSERT_EQ(tasks.size(), 8U);
  EXPECT_EQ(tasks[0], "perplexity_en_test.txt");
  EXPECT_EQ(tasks[1], "perplexity_de_test.txt");
  EXPECT_EQ(tasks[2], "perplexity_test.jsonl");
  EXPECT_EQ(tasks[3], "perplexity_日本");
  EXPECT_EQ(tasks[4], "perplexity_中国");
  EXPECT_NE(tasks[5], tasks[6]);
  EXPECT_EQ(tasks[7], "perplexity_x");
  EXPECT_EQ(registry_.load(tasks[1], "").items[0].requests[0].context, "de/test.txt");
  std::ranges::reverse(asked);
  TaskRegistry again;
  EXPECT_THAT(again.select(asked).tasks, ::testing::UnorderedElementsAreArray(tasks));
}

// JSON would hold other bytes than the names of files do, and both files the same ones.
TEST_F(UserTask, perplexities_of_files_whose_names_are_no_utf8_have_names_that_are) {
  std::vector<std::string> asked;
  for (const char* name : {"caf\xE9.txt", "caf\xE8.txt", "\xE6\x97\xA5\xC3.txt"})
    asked.push_back("perplexity:" + folder_.write(name, "text"));
  const std::vector<std::string> tasks = registry_.select(asked).tasks;
  ASSERT_EQ(tasks.size(), 3U);
  EXPECT_TRUE(tasks[0].starts_with("perplexity_") && tasks[1].starts_with("perplexity_")) << tasks[0];
  EXPECT_NE(tasks[0], tasks[1]);
  EXPECT_EQ(tasks[2], "perplexity_日_");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(nlohmann::json::parse(nlohmann::json(tasks[i]).dump()), tasks[i]);
    EXPECT_EQ(registry_.load(tasks[i], "").items.size(), 1U);
  }
}

TEST_F(UserTask, perplexity_of_a_text_by_its_first_line) {
  for (const char* name : {"notes.log", "README", "X.TXT", "page.md"}) {
    const std::string path = folder_.write(name, "A text\n{of} lines\n");
    const std::string task = registry_.select({"perplexity:" + path}).tasks.at(0);
    EXPECT_EQ(registry_.load(task, "").items.at(0).bytes, 18) << name;
  }
  const std::string lines = folder_.write("lines", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  EXPECT_EQ(registry_.load(registry_.select({"perplexity:" + lines}).tasks.at(0), "").items.size(), 2U);
}

TEST_F(UserTask, a_file_without_text_has_no_perplexity) {
  const std::string empty = folder_.write("empty.txt", ""), blank = folder_.write("blank.jsonl", R"({"text": ""})");
  for (const std::string& path : {empty, blank}) {
    const std::string task = registry_.select({"perplexity:" + path}).tasks.at(0);
    EXPECT_ERROR(registry_.load(task, ""), ExitCode::bad_input, path + " contains no text");
  }
}

TEST_F(UserTask, only_tasks_of_a_dataset_need_the_folder_of_datasets) {
  const std::string of_dataset = folder_.write("hub.json", R"({"dataset": "hellaswag"})");
  const std::string of_files = folder_.write("own.json", R"({"files": {"test": "items.jsonl"}})");
  EXPECT_EQ(split_task_names(" hellaswag,, a b ,"), (std::vector<std::string>{"hellaswag", "a b"}));
  for (const std::string& name : {std::string("hellaswag"), std::string("mmlu"), of_dataset}) {
    EXPECT_TRUE(reads_dataset(name)) << name;
  }
  for (const std::string& name : {of_files, "perplexity:" + of_dataset, folder_ / "missing.json"}) {
    EXPECT_FALSE(reads_dataset(name)) << name;
  }
}

}  // namespace
}  // namespace shiftron
