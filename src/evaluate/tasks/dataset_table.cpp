// Each file format has a function that reads its items. A dataset is one entry of the table.
#include "evaluate/tasks/dataset_table.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kIndexColumn = "Unnamed: 0";

std::vector<Record> hub(const std::string& path, const std::string&, const DatasetOptions&) {
  return read_jsonl(path);
}

std::vector<Record> lines(const std::string& path, const std::string&, const DatasetOptions&) {
  return read_lines(path);
}

// The configuration "all" of MMLU: every subject in one file.
std::vector<Record> of_subject(const std::string& path, const std::string& part, const DatasetOptions&) {
  std::vector<Record> records;
  for (Record& record : read_jsonl(path, part)) {  // skips lines of other subjects without parsing them
    if (record.value.value("subject", Json()) == part) records.push_back(std::move(record));
  }
  if (records.empty()) throw_bad_input(path, " has no items with the subject ", part);
  return records;
}

// Releases of ARC and OpenBookQA: question.stem, which the hub has in `column`, and question.choices as a list of
// {text, label}.
std::vector<Record> with_choices(const std::string& path, const std::string& name, const std::string& column) {
  std::vector<Record> records = read_jsonl(path);
  for (Record& record : records) {
    Json texts = Json::array(), labels = Json::array();
    try {
      const Json question = record.value.at("question");
      for (const Json& choice : question.at("choices")) {
        texts.push_back(choice.at("text"));
        labels.push_back(choice.at("label"));
      }
      record.value["choices"] = {{"text", texts}, {"label", labels}};
      record.value[column] = question.at("stem");
    } catch (const nlohmann::json::exception&) {
      throw_bad_input(record.where, ": not an item of ", name,
                      ": question must contain stem and choices, and each choice text and label; "
                      "use the release's file unchanged");
    }
  }
  return records;
}

std::vector<Record> arc_release(const std::string& path, const std::string&, const DatasetOptions&) {
  return with_choices(path, "ARC", "question");
}

std::vector<Record> openbookqa_release(const std::string& path, const std::string&, const DatasetOptions&) {
  return with_choices(path, "OpenBookQA", "question_stem");
}

// Six cells, without a header row: question, four choices, letter of the right one.
std::vector<Record> mmlu_release(const std::string& path, const std::string& part, const DatasetOptions&) {
  std::vector<Record> records;
  for (const CsvRow& row : read_csv(path)) {
    if (row.cells.size() != 6) {
      throw_bad_input(row.where, ": ", row.cells.size(),
                      " cells instead of question, A, B, C, D and a letter; use the release's file unchanged, without "
                      "a header row");
    }
    const std::string& letter = row.cells[5];
    if (letter.size() != 1 || letter[0] < 'A' || letter[0] > 'D') {
      throw_bad_input(row.where, ": the answer is \"", letter, "\", not A, B, C or D");
    }
    records.push_back({{{"question", row.cells[0]},
                        {"subject", part},
                        {"choices", {row.cells[1], row.cells[2], row.cells[3], row.cells[4]}},
                        {"answer", letter[0] - 'A'}},
                       row.where});
  }
  return records;
}

std::vector<Record> cmmlu_release(const std::string& path, const std::string&, const DatasetOptions& options) {
  std::vector<Record> records = read_csv_records(path);
  for (Record& record : records) {
    const auto index = record.value.find("");
    if (!options.keep_index || index == record.value.end()) continue;
    const std::string text = index->get<std::string>();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw_bad_input(record.where, ": the first column is \"", text, "\", not the item's number");
    }
    record.value[kIndexColumn] = number;
  }
  return records;
}

// A folder of <number>.json, sorted by name as text, which is the hub's order: 10.json, 1001.json, 2.json.
std::vector<Record> math_release(const std::string& path, const std::string&, const DatasetOptions&) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() != ".json") continue;
    const std::string number = entry.path().stem();
    if (number.find_first_not_of("0123456789") != std::string::npos) {
      throw_bad_input(entry.path().string(), ": files of MATH are named <number>.json; remove this one");
    }
    names.insert(entry.path().filename());
  }
  if (names.empty()) throw_bad_input(path, " contains no file <number>.json");
  std::vector<Record> records;
  for (const std::string& name : names) records.push_back(read_json(path + "/" + name));
  return records;
}

DatasetPlace at(const char* split, const char* path, decltype(DatasetPlace::read) read) {
  return {split, path, std::move(read)};
}

}  // namespace

const std::vector<BenchmarkDataset>& dataset_table() {
  using enum DatasetColumnKind;
  static const std::vector<BenchmarkDataset> kTable = {
      {{"lambada_openai", "EleutherAI/lambada_openai (default)", "lambada_test.jsonl"},
       {{"text", text}},
       {at("test", "test.jsonl", hub), at("test", "lambada_test.jsonl", hub)},
       ""},
      {{"lambada_standard", "cimec/lambada", "lambada-dataset: lambada_{test,development}_plain_text.txt"},
       {{"text", text}, {"domain", text_or_null}},
       {at("test", "test.jsonl", hub), at("test", "lambada_test_plain_text.txt", lines),
        at("validation", "validation.jsonl", hub), at("validation", "lambada_development_plain_text.txt", lines)},
       ""},
      {{"winogrande", "allenai/winogrande (winogrande_xl)", "winogrande_1.1: {train_xl,dev}.jsonl"},
       {{"sentence", text}, {"option1", text}, {"option2", text}, {"answer", label}},
       {at("validation", "validation.jsonl", hub), at("validation", "dev.jsonl", hub),
        at("validation", "winogrande_1.1/dev.jsonl", hub), at("train", "train.jsonl", hub),
        at("train", "train_xl.jsonl", hub), at("train", "winogrande_1.1/train_xl.jsonl", hub)},
       ""},
      {{"hellaswag", "Rowan/hellaswag", "hellaswag_{train,val}.jsonl"},
       {{"ind", whole},
        {"activity_label", text},
        {"ctx_a", text},
        {"ctx_b", text_or_empty},
        {"ctx", text},
        {"endings", texts},
        {"source_id", text},
        {"split", text},
        {"split_type", text},
        {"label", label}},
       {at("validation", "validation.jsonl", hub), at("validation", "hellaswag_val.jsonl", hub),
        at("train", "train.jsonl", hub), at("train", "hellaswag_train.jsonl", hub)},
       ""},
      {{"arc", "allenai/ai2_arc (ARC-Easy, ARC-Challenge)", "ARC-V1-Feb2018-2: ARC-*/ARC-*-{Train,Test}.jsonl"},
       {{"id", text}, {"question", text}, {"choices", labelled_texts}, {"answerKey", label}},
       {at("test", "{part}/test.jsonl", hub), at("test", "{part}/{part}-Test.jsonl", arc_release),
        at("test", "ARC-V1-Feb2018-2/{part}/{part}-Test.jsonl", arc_release), at("train", "{part}/train.jsonl", hub),
        at("train", "{part}/{part}-Train.jsonl", arc_release),
        at("train", "ARC-V1-Feb2018-2/{part}/{part}-Train.jsonl", arc_release)},
       ""},
      {{"mmlu", "cais/mmlu (one configuration a subject, or all)",
        "data.tar: data/{dev,test}/<subject>_{dev,test}.csv"},
       {{"question", text}, {"subject", text}, {"choices", texts}, {"answer", whole}},
       {at("test", "{part}/test.jsonl", hub), at("test", "all/test.jsonl", of_subject),
        at("test", "test/{part}_test.csv", mmlu_release), at("test", "data/test/{part}_test.csv", mmlu_release),
        at("dev", "{part}/dev.jsonl", hub), at("dev", "all/dev.jsonl", of_subject),
        at("dev", "dev/{part}_dev.csv", mmlu_release), at("dev", "data/dev/{part}_dev.csv", mmlu_release)},
       ""},
      {{"cmmlu", "haonan-li/cmmlu", "cmmlu_v1_0_1.zip: {dev,test}/<subject>.csv"},
       {{"Question", text}, {"A", text}, {"B", text}, {"C", text}, {"D", text}, {"Answer", text}},
       {at("test", "{part}/test.jsonl", hub), at("test", "test/{part}.csv", cmmlu_release),
        at("test", "data/test/{part}.csv", cmmlu_release), at("dev", "{part}/dev.jsonl", hub),
        at("dev", "dev/{part}.csv", cmmlu_release), at("dev", "data/dev/{part}.csv", cmmlu_release)},
       kIndexColumn},
      {{"math", "EleutherAI/hendrycks_math (one configuration a subject)",
        "MATH.tar: MATH/{train,test}/<subject>/<number>.json"},
       {{"problem", text}, {"level", text}, {"type", text}, {"solution", text}},
       {at("test", "{part}/test.jsonl", hub), at("test", "test/{part}/", math_release),
        at("test", "MATH/test/{part}/", math_release), at("train", "{part}/train.jsonl", hub),
        at("train", "train/{part}/", math_release), at("train", "MATH/train/{part}/", math_release)},
       ""},
      {{"math500", "HuggingFaceH4/MATH-500", "test.jsonl"},
       {{"problem", text},
        {"solution", text},
        {"answer", text},
        {"subject", text},
        {"level", whole},
        {"unique_id", text}},
       {at("test", "test.jsonl", hub)},
       ""},
      {{"minerva_math", "", "shots.jsonl: the four examples of minerva_math in the harness, problem and solution"},
       {{"problem", text}, {"solution", text}},
       {at("shots", "shots.jsonl", hub)},
       ""},
      {{"piqa", "baber/piqa", "validation.jsonl, train.jsonl"},
       {{"goal", text}, {"sol1", text}, {"sol2", text}, {"label", whole}},
       {at("validation", "validation.jsonl", hub), at("train", "train.jsonl", hub)},
       ""},
      {{"boolq", "aps/super_glue (boolq)", "SuperGLUE's BoolQ: {train,val}.jsonl"},
       {{"question", text}, {"passage", text}, {"idx", whole}, {"label", whole_or_flag}},
       {at("validation", "validation.jsonl", hub), at("validation", "val.jsonl", hub), at("train", "train.jsonl", hub)},
       ""},
      {{"openbookqa", "allenai/openbookqa (main)", "OpenBookQA-V1-Sep2018: Data/Main/{train,test}.jsonl"},
       {{"id", text}, {"question_stem", text}, {"choices", labelled_texts}, {"answerKey", label}},
       {at("test", "test.jsonl", hub), at("test", "OpenBookQA-V1-Sep2018/Data/Main/test.jsonl", openbookqa_release),
        at("train", "train.jsonl", hub),
        at("train", "OpenBookQA-V1-Sep2018/Data/Main/train.jsonl", openbookqa_release)},
       ""},
      {{"social_iqa", "lighteval/siqa", "validation.jsonl, train.jsonl"},
       {{"context", text},
        {"question", text},
        {"answerA", text},
        {"answerB", text},
        {"answerC", text},
        {"label", label}},
       {at("validation", "validation.jsonl", hub), at("train", "train.jsonl", hub)},
       ""},
      {{"sciq", "allenai/sciq", "test.jsonl, train.jsonl"},
       {{"question", text},
        {"distractor3", text},
        {"distractor1", text},
        {"distractor2", text},
        {"correct_answer", text},
        {"support", text}},
       {at("test", "test.jsonl", hub), at("train", "train.jsonl", hub)},
       ""},
      {{"copa", "aps/super_glue (copa)", "SuperGLUE's COPA: {train,val}.jsonl"},
       {{"premise", text}, {"choice1", text}, {"choice2", text}, {"question", text}, {"idx", whole}, {"label", whole}},
       {at("validation", "validation.jsonl", hub), at("validation", "val.jsonl", hub), at("train", "train.jsonl", hub)},
       ""},
      {{"triviaqa", "mandarjoshi/trivia_qa (rc.nocontext)", "validation.jsonl, train.jsonl"},
       {{"question", text},
        {"question_id", text},
        {"question_source", text},
        {"entity_pages", any},
        {"search_results", any},
        {"answer", any}},
       {at("validation", "validation.jsonl", hub), at("train", "train.jsonl", hub)},
       ""},
      {{"gsm8k", "openai/gsm8k (main)", "grade_school_math/data: {train,test}.jsonl"},
       {{"question", text}, {"answer", text}},
       {at("test", "test.jsonl", hub), at("train", "train.jsonl", hub)},
       ""},
      {{"wikitext", "EleutherAI/wikitext_document_level (wikitext-2-raw-v1)", "test.jsonl"},
       {{"page", text}},
       {at("test", "test.jsonl", hub)},
       ""},
  };
  return kTable;
}

}  // namespace shiftron
