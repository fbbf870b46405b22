// Finds a dataset's files and puts their items into the hub's columns.
#include "evaluate/tasks/datasets.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/file.h"
#include "core/nearest_name.h"
#include "core/shell_word.h"
#include "evaluate/tasks/python_text.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

const BenchmarkDataset& find(const std::string& name) {
  const auto found = std::find_if(dataset_table().begin(), dataset_table().end(),
                                  [&](const BenchmarkDataset& d) { return d.help.name == name; });
  CHECK(found != dataset_table().end(), "no dataset ", name);
  return *found;
}

bool are_texts(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& part) { return part.is_string(); });
}

// Sets `result` to the column's value as the hub has it; false if the value is not of that kind.
bool as_hub_value(DatasetColumnKind kind, const Json* value, Json& result) {
  using enum DatasetColumnKind;
  const bool absent = value == nullptr || value->is_null();
  if (kind == text_or_empty && absent) result = "";
  if (kind == text_or_null && absent) result = nullptr;
  if ((kind == text_or_empty || kind == text_or_null) && absent) return true;
  if (value == nullptr) return false;
  result = *value;
  if (kind == label && value->is_number_integer()) result = value->dump();
  if (kind == whole_or_flag && value->is_boolean()) result = value->get<bool>() ? 1 : 0;
  if (kind == any) return true;
  if (kind == whole || kind == whole_or_flag) return result.is_number_integer();
  if (kind == texts) return are_texts(*value) && !value->empty();
  if (kind != labelled_texts) return result.is_string();
  if (!value->is_object() || !value->contains("text") || !value->contains("label")) return false;
  const Json& all = value->at("text");
  const Json& labels = value->at("label");
  result = {{"text", all}, {"label", labels}};
  return are_texts(all) && are_texts(labels) && all.size() == labels.size() && !all.empty();
}

const char* kind_text(DatasetColumnKind kind) {
  using enum DatasetColumnKind;
  switch (kind) {
    case whole:
    case whole_or_flag:
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
Json in_hub_columns(const BenchmarkDataset& dataset, const Record& record, const DatasetOptions& options) {
  Json document = Json::object();
  if (options.keep_index && !dataset.optional_column.empty() && record.value.contains(dataset.optional_column)) {
    document[dataset.optional_column] = record.value[dataset.optional_column];
  }
  for (const DatasetColumn& column : dataset.columns) {
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

[[noreturn]] void throw_missing(const BenchmarkDataset& dataset, const std::vector<std::string>& paths,
                                const std::string& data, const std::string& user, const std::string& split) {
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
  for (const BenchmarkDataset& dataset : dataset_table()) all.push_back(dataset.help);
  return all;
}

DatasetHelp dataset_help(const std::string& name) {
  return find(name).help;
}

std::vector<std::string> split_paths(const std::string& dataset, const std::string& part, const std::string& split) {
  std::vector<std::string> paths;
  for (const DatasetPlace& place : find(dataset).places) {
    if (place.split == split) paths.push_back(dataset + "/" + python::replace(place.path, "{part}", part));
  }
  return paths;
}

Split read_split(const std::string& dataset_name, const std::string& part, const std::string& split,
                 const std::string& data, const std::string& user, const DatasetOptions& options) {
  const BenchmarkDataset& dataset = find(dataset_name);
  refuse_lost_link(data);
  if (!std::filesystem::is_directory(data)) {
    throw_bad_input("'", data, "' is not a directory, but ", user,
                    " needs the folder of datasets: give it with --data, or evaluation.data ", "of a run");
  }
  const std::vector<std::string> paths = split_paths(dataset_name, part, split);
  size_t number = 0;
  for (const DatasetPlace& place : dataset.places) {
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
