// Results of benchmark tasks: in the files of lm-evaluation-harness, and as a table to read.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/tasks/metrics.h"
#include "evaluate/tasks/request.h"
#include "evaluate/tasks/task.h"

namespace shiftron {

struct AnsweredTask {
  LoadedTask task;
  std::vector<Answer> answers;  // to all requests of all items, in their order
};

// A metric of a task or a group.
struct ResultRow {
  std::string name{}, alias{};
  int depth = 0;  // groups above it
  bool is_group = false;
  std::string metric{};  // name_with_filter()
  Estimate estimate{};
  double macro = 0;  // of a group: the unweighted mean of its tasks
  bool higher_is_better = true;
  int64_t items = 0;
  int64_t fewshot = 0;  // of a task
};

// The parts of a report other than results: facts about the model and the evaluation.
struct ReportFacts {
  std::string model_name{};                // the step's directory, as the user gave it
  nlohmann::ordered_json configuration{};  // "config" of the report: the harness's keys and ours
  int64_t max_length = 0;
  std::string end_of_document{};  // the piece's name
  int32_t end_of_document_id = 0;
  std::string beginning_of_document{};  // likewise; "": there is none
  int32_t beginning_of_document_id = -1;
  std::string code_version{};
  double began = 0;  // seconds since 1970
  double seconds = 0;
  std::string time{};  // as time_of_report() returns it
};

class BenchmarkReport {
 public:
  // `resamples` and `pieces` as in aggregate().
  BenchmarkReport(Selection selection, std::vector<AnsweredTask> tasks, int64_t resamples = 100'000,
                  const Pieces& pieces = {});

  // Groups before their members, in the order of the selection.
  const std::vector<ResultRow>& rows() const { return rows_; }
  nlohmann::ordered_json results(const ReportFacts& facts) const;
  // A line of JSON for each item of task `index`, and again for each of its filters of answers.
  std::string samples(size_t index) const;
  std::span<const AnsweredTask> tasks() const { return tasks_; }
  std::vector<AnsweredTask> release_tasks() && { return std::move(tasks_); }

  // Writes DIRECTORY/<name of the model>/results_<time>.json, samples_<task>_<time>.jsonl and table_<time>.md, the
  // results last; returns the path of the results. Throws Error if writing fails.
  std::string write(const std::string& directory, const ReportFacts& facts) const;

 private:
  std::string samples(size_t index, const AnswerFilter& filter) const;
  void add_task(size_t index, int depth);
  void add_group(const TaskGroup& group, int depth);
  const AnsweredTask* find(const std::string& name) const;
  std::span<const Answer> answers_of(const AnsweredTask& task, size_t item) const;
  Selection selection_;
  std::vector<AnsweredTask> tasks_;
  std::vector<std::vector<std::vector<MetricValue>>> values_;  // [task][metric][item]
  std::vector<std::vector<Estimate>> estimates_;               // [task][metric]
  std::vector<std::vector<size_t>> first_answers_;             // [task][item]
  std::vector<ResultRow> rows_;
};

// A warning about rows whose perplexity overflows; "" if there are none. Not for answers that are not finite.
std::string infinite_perplexity_note(const std::vector<ResultRow>& rows);

// A value in a table: four decimals, "n/a" for NaN, exponents for large values.
std::string number_text(double value);

// A Markdown table that is also readable as plain text.
std::string results_table(const std::vector<ResultRow>& rows);

// "2026-01-31T10-20-30.123456" for the current time, in UTC.
std::string time_of_report();
// As a part of a path: each run of characters that file systems refuse becomes "__". Leading ./ and ../ are removed, as
// they would hide the folder. More than 200 bytes are cut and end in a hash of the whole name.
std::string sanitized_model_name(const std::string& name);
// The model's name in a report: `directory`, or the actual directory's name if `directory` is only dots and slashes.
std::string model_name_of(const std::string& directory);

}  // namespace shiftron
