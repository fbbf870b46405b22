// A benchmark task as data: which file, which prompt, which choices, which metrics.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/enum_names.h"
#include "evaluate/tasks/metrics.h"
#include "evaluate/tasks/request.h"

namespace shiftron {

enum class TaskKind { multiple_choice, log_likelihood, rolling, generate };
// As users write them in task files.
constexpr std::array<const char*, 4> names_of(TaskKind) {
  return {"multiple_choice", "log_likelihood", "rolling", "generate"};
}
// As the harness's reports have them ("output_type").
std::string harness_name(TaskKind kind);

// What is appended to a document before anything is made of it.
enum class Preparation {
  none,
  hellaswag,       // query, choices, gold
  boxed_answer,    // answer: what the solution boxes
  minerva_answer,  // the same, normalised
};

// Which examples stand before an item.
enum class ShotDraw {
  first,    // of the pool, in its order
  sampled,  // by Python's Random(1234), one sample for each item, in their order
  apart,    // sampled, one more than wanted, and those that equal the item left out: the pool may hold it
};

// Texts are templates (text_template.h) unless said otherwise.
struct TaskDefinition {
  std::string name{};
  std::string alias{};  // in tables; empty: the name
  double version = 1;
  bool own = false;  // not a task of the harness
  std::string help{};
  TaskKind kind = TaskKind::multiple_choice;

  std::string dataset{};                       // of datasets.h; empty: `files` hold the splits
  std::string part{};                          // of the dataset: a subject, a configuration
  std::map<std::string, std::string> files{};  // split → path
  std::string split = "test";                  // that is evaluated
  std::string shot_split{};                    // empty: no examples can be had
  Preparation preparation = Preparation::none;

  std::string description{};            // in front of everything
  std::string context{};                // the question
  std::vector<std::string> contexts{};  // one for each choice, all followed by `target`; instead of context and choices
  std::vector<std::string> choices{};
  std::string choices_from{};  // a list (ItemValue), instead of `choices`
  std::string gold{};          // the index of the right choice, or what is looked up in labels
  std::vector<std::string> labels{};
  std::string labels_from{};  // a list (ItemValue), instead of `labels`
  // log_likelihood: what follows the context as it stands; generate: the right answer; rolling: the text.
  std::string target{};
  std::string shot_target{};    // what an example shows instead of `target`
  std::string measured{};       // rolling: the text whose words and bytes count; empty: `target`
  std::string delimiter = " ";  // before a choice, and before an example's answer; no template

  ShotDraw draw = ShotDraw::sampled;
  int64_t default_shots = 0;
  // The whole prompt behind the examples of a file that users bring, for a known question: its SHA-256; empty: not
  // checked.
  std::string shots_digest{};
  std::string shots_question{};  // JSON of that item

  GenerationRules generation{};
  std::vector<Metric> metrics{};
};

// Tasks that are reported together.
struct GroupDefinition {
  std::string name{};
  std::string alias{};
  std::string version{};
  std::vector<std::string> members{};  // tasks or groups
  std::vector<std::string> metrics{};  // aggregated over all tasks below; none: the name only stands for its members
  bool own = false;
  std::string help{};
};

std::vector<TaskDefinition> built_in_tasks();
std::vector<GroupDefinition> built_in_groups();

// A user's task out of a JSON file (docs/evaluation.md). Paths in it are relative to that file. Throws one
// Error(bad_input) that names the file and every fault of it.
TaskDefinition read_task_file(const std::string& path);
// Rolling perplexity of a JSONL file's "text" or of a text file, as the task `name`.
TaskDefinition perplexity_of_file(const std::string& path, const std::string& name);
// What those of `names` that are "perplexity:FILE" are called, by name: perplexity_ and the file's name without its
// ending, and where several have that, with its ending and as many folders as tell them apart.
std::map<std::string, std::string> perplexity_names(const std::vector<std::string>& names);

}  // namespace shiftron
