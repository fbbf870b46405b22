// Computes the metrics, and writes the files that tools for the harness's results read.
#include "evaluate/tasks/benchmark_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "evaluate/tasks/markdown_table.h"
#include "evaluate/tasks/python_json.h"
#include "evaluate/tasks/sha256.h"
#include "evaluate/tasks/task_hashes.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

// The harness's names: "acc,none", "exact_match_stderr,strict-match". `metric`: as name_with_filter() returns it.
std::string key_of(const std::string& metric, const std::string& more = "") {
  const size_t comma = std::min(metric.find(','), metric.size());
  const std::string filter = comma == metric.size() ? "," + AnswerFilter{}.name : metric.substr(comma);
  return metric.substr(0, comma) + more + filter;
}

// The filters of a task's answers, each once.
std::vector<AnswerFilter> filters_of(const TaskDefinition& task) {
  std::vector<AnswerFilter> filters;
  for (const Metric& metric : task.metrics) {
    if (std::ranges::find(filters, metric.filter.name, &AnswerFilter::name) == filters.end())
      filters.push_back(metric.filter);
  }
  if (filters.empty()) filters.emplace_back();
  return filters;
}

Json error_of(const Estimate& estimate) {
  return estimate.error ? Json(*estimate.error) : Json("N/A");
}

// The requests to the model, under the harness's names.
Json arguments_of(const Item& item) {
  Json arguments = Json::object();
  for (size_t i = 0; i < item.requests.size(); ++i) {
    const Request& request = item.requests[i];
    Json one = {{"arg_0", request.context}};
    if (request.kind == RequestKind::log_likelihood) one["arg_1"] = request.continuation;
    if (request.kind == RequestKind::generate) {
      one["arg_1"] = {{"until", request.generation.until}, {"do_sample", false}, {"temperature", 0.0}};
      if (request.generation.states_most_tokens) one["arg_1"]["max_gen_toks"] = request.generation.most_tokens;
    }
    arguments["gen_args_" + std::to_string(i)] = std::move(one);
  }
  return arguments;
}

// Numbers and booleans as strings, as Python's str() writes them.
Json response_of(const Request& request, const Answer& answer) {
  if (request.kind == RequestKind::generate) return answer.text;
  const std::string number = python::repr(answer.log_likelihood);
  if (request.kind == RequestKind::rolling) return number;
  return Json::array({number, answer.greedy ? "True" : "False"});
}

// A generated text may end within a UTF-8 character, which is then written as U+FFFD, as in the harness.
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

bool is_weighted(const Metric& metric) {
  return metric.aggregation == Aggregation::weighted_perplexity || metric.aggregation == Aggregation::bits;
}

Json value_of(const Metric& metric, const MetricValue& value) {
  if (is_weighted(metric)) return Json::array({value.value, static_cast<int64_t>(value.weight)});  // words or bytes
  if (value.is_whole) return static_cast<int64_t>(value.value);
  return value.value;
}

std::string with_space(int depth) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += "  ";
  return depth == 0 ? text : text.substr(2) + "- ";
}

}  // namespace

BenchmarkReport::BenchmarkReport(Selection selection, std::vector<AnsweredTask> tasks, int64_t resamples,
                                 const Pieces& pieces)
    : selection_(std::move(selection)), tasks_(std::move(tasks)) {
  for (const AnsweredTask& entry : tasks_) {
    const TaskDefinition& definition = entry.task.definition;
    std::vector<size_t>& first = first_answers_.emplace_back();
    size_t at = 0;
    for (const Item& item : entry.task.items) {
      first.push_back(at);
      at += item.requests.size();
    }
    first.push_back(at);
    CHECK(at == entry.answers.size(), entry.task.name, ": ", at, " requests, ", entry.answers.size(), " answers");
    auto& values = values_.emplace_back();
    auto& estimates = estimates_.emplace_back();
    for (const Metric& metric : definition.metrics) {
      auto& of_items = values.emplace_back();
      for (size_t i = 0; i < entry.task.items.size(); ++i) {
        of_items.push_back(score(metric, entry.task.items[i], answers_of(entry, i)));
      }
      estimates.push_back(aggregate(metric.aggregation, of_items, resamples, pieces));
    }
  }
  std::set<std::string> below;  // members of some group
  for (const TaskGroup& group : selection_.groups) {
    below.insert(group.groups.begin(), group.groups.end());
    below.insert(group.tasks.begin(), group.tasks.end());
  }
  for (const TaskGroup& group : selection_.groups) {
    if (!below.contains(group.definition.name)) add_group(group, 0);
  }
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (!below.contains(tasks_[i].task.name)) add_task(i, 0);
  }
}

const AnsweredTask* BenchmarkReport::find(const std::string& name) const {
  const auto found = std::ranges::find_if(tasks_, [&](const AnsweredTask& entry) { return entry.task.name == name; });
  return found == tasks_.end() ? nullptr : &*found;
}

std::span<const Answer> BenchmarkReport::answers_of(const AnsweredTask& task, size_t item) const {
  const auto& first = first_answers_[static_cast<size_t>(&task - tasks_.data())];
  return std::span(task.answers).subspan(first[item], first[item + 1] - first[item]);
}

void BenchmarkReport::add_task(size_t index, int depth) {
  const LoadedTask& task = tasks_[index].task;
  for (size_t i = 0; i < task.definition.metrics.size(); ++i) {
    rows_.push_back({.name = task.name,
                     .alias = task.alias(),
                     .depth = depth,
                     .metric = name_with_filter(task.definition.metrics[i]),
                     .estimate = estimates_[index][i],
                     .higher_is_better = task.definition.metrics[i].higher_is_better,
                     .items = static_cast<int64_t>(task.items.size()),
                     .fewshot = task.fewshot});
  }
}

void BenchmarkReport::add_group(const TaskGroup& group, int depth) {
  const GroupDefinition& definition = group.definition;
  for (const std::string& name : definition.metrics) {
    ResultRow row{.name = definition.name,
                  .alias = definition.alias.empty() ? definition.name : definition.alias,
                  .depth = depth,
                  .is_group = true,
                  .metric = name};
    std::vector<GroupPart> parts;
    for (const std::string& task_name : group.tasks) {
      const AnsweredTask* entry = find(task_name);
      CHECK(entry != nullptr, definition.name, " has ", task_name, ", which has not been evaluated");
      const auto index = static_cast<size_t>(entry - tasks_.data());
      const std::vector<Metric>& metrics = entry->task.definition.metrics;
      const auto metric = std::ranges::find(metrics, name, &Metric::name);
      CHECK(metric != metrics.end(), task_name, " has no ", name, ", which its group ", definition.name, " has");
      parts.push_back({estimates_[index][static_cast<size_t>(metric - metrics.begin())],
                       static_cast<int64_t>(entry->task.items.size())});
      row.items += parts.back().items;
      row.higher_is_better = metric->higher_is_better;
    }
    row.estimate = aggregate_group(parts);
    row.macro = mean_of_parts(parts);
    rows_.push_back(std::move(row));
  }
  std::set<std::string> in_subgroups;
  for (const std::string& name : group.groups) {
    const auto sub =
        std::ranges::find_if(selection_.groups, [&](const TaskGroup& other) { return other.definition.name == name; });
    CHECK(sub != selection_.groups.end(), definition.name, " has ", name, ", which is not a group of the selection");
    add_group(*sub, depth + 1);
    in_subgroups.insert(sub->tasks.begin(), sub->tasks.end());
  }
  for (const std::string& name : group.tasks) {
    if (!in_subgroups.contains(name)) add_task(static_cast<size_t>(find(name) - tasks_.data()), depth + 1);
  }
}

Json BenchmarkReport::results(const ReportFacts& facts) const {
  Json results = Json::object(), groups = Json::object(), better = Json::object(), samples = Json::object();
  Json configurations = Json::object(), versions = Json::object(), shots = Json::object(), hashes = Json::object();
  for (const ResultRow& row : rows_) {
    Json& result = results[row.name];
    if (result.is_null()) result = {{"name", row.name}, {"alias", row.alias}, {"sample_len", row.items}};
    result[key_of(row.metric)] = row.estimate.value;
    result[key_of(row.metric, "_stderr")] = error_of(row.estimate);
    if (row.is_group) {
      result[key_of(row.metric, "_macro")] = row.macro;
      result["sample_count"][key_of(row.metric)] = row.items;
    }
  }
  Json members = Json::object();
  for (const TaskGroup& group : selection_.groups) {
    const std::string& name = group.definition.name;
    groups[name] = results[name];
    versions[name] = group.definition.version;
    members[name] = group.groups.empty() ? group.tasks : group.groups;
    if (!group.groups.empty()) continue;  // the harness writes neither of the following for such groups
    const AnsweredTask* first = find(group.tasks.front());
    shots[name] = first->task.fewshot;
    for (const ResultRow& row : rows_) {
      if (row.name == name) better[name][row.metric] = row.higher_is_better;
    }
  }
  for (const AnsweredTask& entry : tasks_) {
    const LoadedTask& task = entry.task;
    const TaskDefinition& definition = task.definition;
    Json metrics = Json::array();
    for (const Metric& metric : definition.metrics) {
      if (better[task.name].contains(metric.name)) continue;  // with another filter
      metrics.push_back({{"metric", metric.name}, {"higher_is_better", metric.higher_is_better}});
      better[task.name][metric.name] = metric.higher_is_better;
    }
    configurations[task.name] = {{"task", task.name},
                                 {"dataset", definition.dataset},
                                 {"dataset_part", definition.part},
                                 {"files", task.files},
                                 {"test_split", definition.split},
                                 {"fewshot_split", definition.shot_split},
                                 {"description", definition.description},
                                 {"output_type", harness_name(definition.kind)},
                                 {"num_fewshot", task.fewshot},
                                 {"metric_list", metrics},
                                 {"metadata", {{"version", definition.version}, {"own", definition.own}}}};
    versions[task.name] = definition.version;
    shots[task.name] = task.fewshot;
    samples[task.name] = {{"original", task.original_items}, {"effective", task.items.size()}};
    hashes[task.name] = task_hash(task.items, filters_of(definition).size());
  }
  const Json end = Json::array({facts.end_of_document, std::to_string(facts.end_of_document_id)});
  Json report = {{"results", results}};
  if (!groups.empty()) report["groups"] = groups;
  report["group_subtasks"] = members;
  report["configs"] = configurations;
  report["versions"] = versions;
  report["n-shot"] = shots;
  report["higher_is_better"] = better;
  report["n-samples"] = samples;
  report["config"] = facts.configuration;
  report["git_hash"] = facts.code_version;
  report["date"] = facts.began;
  for (const char* absent : {"pretty_env_info", "transformers_version", "lm_eval_version", "upper_git_hash"}) {
    report[absent] = nullptr;
  }
  report["tokenizer_pad_token"] = end;
  report["tokenizer_eos_token"] = end;
  const int32_t begin = facts.beginning_of_document_id;  // without one as the harness reports it
  report["tokenizer_bos_token"] = begin < 0 ? Json::array({nullptr, "None"})
                                            : Json::array({facts.beginning_of_document, std::to_string(begin)});
  report["eot_token_id"] = facts.end_of_document_id;
  report["max_length"] = facts.max_length;
  report["task_hashes"] = hashes;
  report["model_source"] = "shiftron";
  report["model_name"] = facts.model_name;
  report["model_name_sanitized"] = sanitized_model_name(facts.model_name);
  for (const char* absent :
       {"system_instruction", "system_instruction_sha", "fewshot_as_multiturn", "chat_template", "chat_template_sha"}) {
    report[absent] = nullptr;
  }
  report["total_evaluation_time_seconds"] = fmt::format("{:.3f}", facts.seconds);
  return report;
}

std::string BenchmarkReport::samples(size_t index) const {
  std::string lines;
  for (const AnswerFilter& filter : filters_of(tasks_[index].task.definition)) lines += samples(index, filter);
  return lines;
}

std::string BenchmarkReport::samples(size_t index, const AnswerFilter& filter) const {
  const AnsweredTask& entry = tasks_[index];
  const std::vector<Metric>& metrics = entry.task.definition.metrics;
  Json names = Json::array();
  for (const Metric& metric : metrics) {
    if (metric.filter.name == filter.name) names.push_back(metric.name);
  }
  std::string lines;
  for (size_t i = 0; i < entry.task.items.size(); ++i) {
    const Item& item = entry.task.items[i];
    const std::span<const Answer> answers = answers_of(entry, i);
    Json responses = Json::array(), filtered = Json::array();
    for (size_t j = 0; j < answers.size(); ++j) {
      const Json response = response_of(item.requests[j], answers[j]);
      responses.push_back(Json::array({response}));
      filtered.push_back(item.requests[j].kind == RequestKind::generate ? Json(filtered_answer(filter, answers[j].text))
                                                                        : response);
    }
    const ItemHashes hashes = hashes_of(item);
    Json line = {{"doc_id", item.number},       {"doc", item.document},
                 {"target", item.target},       {"arguments", arguments_of(item)},
                 {"resps", responses},          {"filtered_resps", filtered},
                 {"filter", filter.name},       {"metrics", names},
                 {"doc_hash", hashes.document}, {"prompt_hash", hashes.prompt},
                 {"target_hash", hashes.target}};
    for (size_t m = 0; m < metrics.size(); ++m) {
      if (metrics[m].filter.name == filter.name) line[metrics[m].name] = value_of(metrics[m], values_[index][m][i]);
    }
    lines += text_of(line, -1) + "\n";
  }
  return lines;
}

std::string BenchmarkReport::write(const std::string& directory, const ReportFacts& facts) const {
  const std::string folder = directory + "/" + sanitized_model_name(facts.model_name);
  create_directories_durably(folder);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const std::string name = sanitized_model_name(tasks_[i].task.name);
    write_file_durably(folder + "/samples_" + name + "_" + facts.time + ".jsonl", samples(i));
  }
  write_file_durably(folder + "/table_" + facts.time + ".md", results_table(rows_));
  const std::string path = folder + "/results_" + facts.time + ".json";
  write_file_durably(path, text_of(results(facts), 2) + "\n");
  return path;
}

std::string infinite_perplexity_note(const std::vector<ResultRow>& rows) {
  std::string named;
  for (const ResultRow& row : rows) {
    if (std::isinf(row.estimate.value)) named += (named.empty() ? "" : ", ") + row.name + " " + row.metric;
  }
  if (named.empty()) return "";
  return named +
         " is too large for a floating-point number: inf in tables, null in JSON; see bits_per_byte and the "
         "log-likelihoods in samples_*.jsonl instead, which `evaluate compare` uses";
}

std::string number_text(double value) {
  constexpr double kMostInDigits = 1e12;
  if (std::isnan(value)) return "n/a";
  return std::isinf(value) || std::abs(value) < kMostInDigits ? fmt::format("{:.4f}", value)
                                                              : fmt::format("{:.4e}", value);
}

std::string results_table(const std::vector<ResultRow>& rows) {
  std::vector<std::vector<std::string>> cells = {{"task", "n-shot", "items", "metric", "", "value", "± error"}};
  const std::string* before = nullptr;
  for (const ResultRow& row : rows) {
    const bool again = before != nullptr && *before == row.name;
    before = &row.name;
    cells.push_back({again ? "" : with_space(row.depth) + row.alias,
                     again || row.is_group ? "" : std::to_string(row.fewshot), again ? "" : std::to_string(row.items),
                     row.metric, row.higher_is_better ? "↑" : "↓", number_text(row.estimate.value),
                     row.estimate.error ? number_text(*row.estimate.error) : "n/a"});
  }
  return markdown_table(cells, {1, 2, 5, 6});
}

std::string time_of_report() {
  const auto now = std::chrono::system_clock::now();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  return fmt::format("{:%Y-%m-%dT%H-%M-%S}.{:06}", fmt::gmtime(std::chrono::system_clock::to_time_t(now)), micros);
}

std::string sanitized_model_name(const std::string& name) {
  const std::string refused = "\"<>:/|\\?*[]";
  std::string text;
  bool in_run = false;
  const size_t begin = name.starts_with('.') && name.find('/') != std::string::npos ? name.find_first_not_of("./") : 0;
  for (const char c : name.substr(std::min(begin, name.size()))) {
    const bool bad = refused.find(c) != std::string::npos;
    if (!bad) text += c;
    if (bad && !in_run) text += "__";
    in_run = bad;
  }
  // File systems allow 255 bytes, including the rest of the file's name.
  constexpr size_t kMost = 200, kKept = 160;
  if (text.size() <= kMost) return text;
  size_t end = kKept;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "__" + to_hex(xxh3_64(name));
}

std::string model_name_of(const std::string& directory) {
  if (directory.find_first_not_of("./") != std::string::npos) return directory;
  const std::string name = std::filesystem::canonical(directory).filename();
  return name.empty() ? directory : name;
}

}  // namespace shiftron
