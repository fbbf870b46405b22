// One table of datasets. Each file format has a function that reads its items.
#include "evaluate/tasks/datasets.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "core/file.h"
#include "core/nearest_name.h"
#include "core/shell_word.h"
#include "evaluate/tasks/python_text.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

enum class ColumnKind {
  text,
  text_or_empty,  // may be missing or null: then ""
  text_or_null,   // may be missing: then null
  label,          // a text; whole numbers are converted to text
  whole,
  texts,
  labelled_texts,  // {"text": [...], "label": [...]} of equal length
};

struct Column {
  const char* name;
  ColumnKind kind;
};

struct Place {
  std::string split;
  std::string path;  // below the dataset's folder; {part} stands for the part
  // Reads all items of the file, or of the folder if the path ends with a slash; not yet reduced to the hub's columns.
  std::function<std::vector<Record>(const std::string& path, const std::string& part, const DatasetOptions&)> read;
};

struct Dataset {
  DatasetHelp help;
  std::vector<Column> columns;
  std::vector<Place> places;
  std::string optional_column;  // kept if DatasetOptions::keep_index is set
};

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

// ARC's release: question.stem, and question.choices as a list of {text, label}.
std::vector<Record> arc_release(const std::string& path, const std::string&, const DatasetOptions&) {
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
      record.value["question"] = question.at("stem");
    } catch (const nlohmann::json::exception&) {
      throw_bad_input(record.where,
                      ": not an item of ARC: question must contain stem and choices, and each choice text and label; "
                      "use the release's file unchanged");
    }
  }
  return records;
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

Place at(const char* split, const char* path, decltype(Place::read) read) {
  return {split, path, std::move(read)};
}

const std::vector<Dataset>& table() {
  using enum ColumnKind;
  static const std::vector<Dataset> kTable = {
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
      {{"wikitext", "EleutherAI/wikitext_document_level (wikitext-2-raw-v1)", "test.jsonl"},
       {{"page", text}},
       {at("test", "test.jsonl", hub)},
       ""},
  };
  return kTable;
}

const Dataset& find(const std::string& name) {
  const auto found =
      std::find_if(table().begin(), table().end(), [&](const Dataset& d) { return d.help.name == name; });
  CHECK(found != table().end(), "no dataset ", name);
  return *found;
}

bool are_texts(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& part) { return part.is_string(); });
}

// Sets `result` to the column's value as the hub has it; false if the value is not of that kind.
bool as_hub_value(ColumnKind kind, const Json* value, Json& result) {
  using enum ColumnKind;
  const bool absent = value == nullptr || value->is_null();
  if (kind == text_or_empty && absent) result = "";
  if (kind == text_or_null && absent) result = nullptr;
  if ((kind == text_or_empty || kind == text_or_null) && absent) return true;
  if (value == nullptr) return false;
  result = *value;
  if (kind == label && value->is_number_integer()) result = value->dump();
  if (kind == whole) return value->is_number_integer();
  if (kind == texts) return are_texts(*value) && !value->empty();
  if (kind != labelled_texts) return result.is_string();
  if (!value->is_object() || !value->contains("text") || !value->contains("label")) return false;
  const Json& all = value->at("text");
  const Json& labels = value->at("label");
  result = {{"text", all}, {"label", labels}};
  return are_texts(all) && are_texts(labels) && all.size() == labels.size() && !all.empty();
}

const char* kind_text(ColumnKind kind) {
  using enum ColumnKind;
  switch (kind) {
    case whole:
      return "a whole number";
    case texts:
      return "a list of texts";
    case labelled_texts:
      return "an object with the lists text and label of equal length";
    case label:
      return "a text or a whole number";
    default:
      return "a text";
  }
}

// Drops columns that the hub does not have, as some releases have more.
Json in_hub_columns(const Dataset& dataset, const Record& record, const DatasetOptions& options) {
  Json document = Json::object();
  if (options.keep_index && !dataset.optional_column.empty() && record.value.contains(dataset.optional_column)) {
    document[dataset.optional_column] = record.value[dataset.optional_column];
  }
  for (const Column& column : dataset.columns) {
    const auto found = record.value.find(column.name);
    Json value;
    if (!as_hub_value(column.kind, found == record.value.end() ? nullptr : &*found, value)) {
      std::string has;
      for (const auto& item : record.value.items()) has += (has.empty() ? "" : ", ") + item.key();
      throw_bad_input(
          record.where, ": ", found == record.value.end() ? "no column " : "the column ", column.name,
          found == record.value.end() ? " (it has: " + has + ")" : std::string(" is not ") + kind_text(column.kind),
          "; expected an item of ", dataset.help.hub.empty() ? dataset.help.name : dataset.help.hub, " or of ",
          dataset.help.origin);
    }
    document[column.name] = std::move(value);
  }
  return document;
}

// Parquet files below `folder`.
std::vector<std::filesystem::path> parquet_below(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> found;
  for (std::filesystem::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".parquet") found.push_back(entry->path());
  }
  std::ranges::sort(found);
  return found;
}

// Those that have the items of `wanted` (DATA/DATASET/SPLIT.jsonl or DATA/DATASET/PART/SPLIT.jsonl): they are named
// after the split and, if there is a part, are in a folder of its name. None if they are in different folders.
std::vector<std::filesystem::path> parquet_of(const std::vector<std::filesystem::path>& found,
                                              const std::filesystem::path& folder,
                                              const std::filesystem::path& wanted) {
  std::vector<std::filesystem::path> suitable;
  const std::string split = wanted.stem();
  const std::filesystem::path part = wanted.parent_path() == folder ? "" : wanted.parent_path().filename();
  for (const std::filesystem::path& path : found) {
    const std::string name = path.stem();
    const std::filesystem::path inside = path.parent_path().lexically_relative(folder);
    if (name != split && !name.starts_with(split + "-")) continue;
    if (!part.empty() && std::ranges::find(inside, part) == inside.end()) continue;
    suitable.push_back(path);
  }
  if (!suitable.empty() && suitable.front().parent_path() != suitable.back().parent_path()) suitable.clear();
  return suitable;
}

[[noreturn]] void throw_missing(const Dataset& dataset, const std::vector<std::string>& paths, const std::string& data,
                                const std::string& user, const std::string& split) {
  std::string looked;
  for (const std::string& path : paths) looked += "\n  " + data + "/" + path;
  const std::string folder = data + "/" + dataset.help.name;
  const std::vector<std::filesystem::path> parquet = parquet_below(folder);
  std::string advice = "put " + dataset.help.origin + " into " + folder;
  if (!dataset.help.hub.empty()) advice += ", or the hub's dataset " + dataset.help.hub + " as JSONL";
  if (!parquet.empty()) {
    advice = "there are Parquet files; convert those of this split: launch/benchmarks-data " +
             shell_word(data + "/" + paths[0]) + " INPUT.parquet…";
  }
  for (const std::string& path : paths) {
    const std::string wanted = data + "/" + path;
    const std::vector<std::filesystem::path> parts = parquet_of(parquet, folder, wanted);
    if (!path.ends_with("/" + split + ".jsonl") || parts.empty()) continue;
    advice = parts.front().string() + " exists; convert it: launch/benchmarks-data " + shell_word(wanted);
    for (const std::filesystem::path& one : parts) advice += " " + shell_word(one);
    break;
  }
  throw_bad_input(user, " needs the split ", split, " of ", dataset.help.name,
                  ", but none of these files exists:", looked, "\n  ", advice);
}

}  // namespace

std::vector<DatasetHelp> datasets() {
  std::vector<DatasetHelp> all;
  for (const Dataset& dataset : table()) all.push_back(dataset.help);
  return all;
}

DatasetHelp dataset_help(const std::string& name) {
  return find(name).help;
}

std::vector<std::string> split_paths(const std::string& dataset, const std::string& part, const std::string& split) {
  std::vector<std::string> paths;
  for (const Place& place : find(dataset).places) {
    if (place.split == split) paths.push_back(dataset + "/" + python::replace(place.path, "{part}", part));
  }
  return paths;
}

Split read_split(const std::string& dataset_name, const std::string& part, const std::string& split,
                 const std::string& data, const std::string& user, const DatasetOptions& options) {
  const Dataset& dataset = find(dataset_name);
  refuse_lost_link(data);
  if (!std::filesystem::is_directory(data)) {
    throw_bad_input("'", data, "' is not a directory, but ", user,
                    " needs the folder of datasets: give it with --data, or evaluation.data ", "of a run");
  }
  const std::vector<std::string> paths = split_paths(dataset_name, part, split);
  size_t number = 0;
  for (const Place& place : dataset.places) {
    if (place.split != split) continue;
    const std::string path = data + "/" + paths[number++];
    if (!name_exists(path)) continue;
    Split result{place.read(path, part, options), {path}};
    if (result.records.empty()) throw_bad_input(path, " contains no items");
    for (Record& record : result.records) record.value = in_hub_columns(dataset, record, options);
    return result;
  }
  throw_missing(dataset, paths, data, user, split);
}

}  // namespace shiftron
