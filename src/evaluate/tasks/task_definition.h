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
// The name in the harness's reports ("output_type").
std::string harness_name(TaskKind kind);

// Fields that are added to a document before it is used.
enum class Preparation {
  none,
  hellaswag,       // query, choices, gold
  boxed_answer,    // answer: the solution's boxed text
  minerva_answer,  // the same, normalised
};

// The kind of tasks whose items have such a score.
TaskKind kind_of(ItemScore scorer);

// Which examples precede an item.
enum class ShotDraw {
  first,    // of the pool, in its order
  sampled,  // by Python's Random(1234), one sample per item, in order
  apart,    // sampled with one extra, and examples equal to the item dropped: the pool may contain it
};

// Texts are templates (text_template.h) unless said otherwise.
struct TaskDefinition {
  std::string name{};
  std::string alias{};  // in tables; empty: the name
  double version = 1;
  bool own = false;  // not a task of the harness
  std::string help{};
  TaskKind kind = TaskKind::multiple_choice;

  std::string dataset{};                       // of datasets.h; empty: the splits are in `files`
  std::string part{};                          // of the dataset: a subject, a configuration
  std::map<std::string, std::string> files{};  // split → path
  std::string split = "test";                  // the split to evaluate
  std::string shot_split{};                    // split of the examples; empty: none available
  Preparation preparation = Preparation::none;

  std::string description{};            // in front of everything
  std::string context{};                // the question
  std::vector<std::string> contexts{};  // instead of context and choices: one per choice, each followed by `target`
  std::vector<std::string> choices{};
  std::string choices_from{};  // a list (ItemValue) to use instead of `choices`
  std::string gold{};          // index of the right choice, or a text to look up in labels
  std::vector<std::string> labels{};
  std::string labels_from{};  // a list (ItemValue) to use instead of `labels`
  // log_likelihood: the text that directly follows the context; generate: the right answer; rolling: the text.
  std::string target{};
  bool target_is_choice = false;  // multiple_choice: the target as hashed is the right choice's text, not its index
  std::string shot_target{};      // what an example shows instead of `target`
  std::vector<std::string> targets{};  // generate: several right answers instead of `target`
  std::string targets_from{};          // a list (ItemValue) to use instead of `targets`
  std::string measured{};              // rolling: the text whose words and bytes count; empty: `target`
  std::string delimiter = " ";         // before a choice and before an example's answer; not a template

  ShotDraw draw = ShotDraw::sampled;
  int64_t default_shots = 0;
  // SHA-256 of the whole prompt, which is built from a user's file of examples and a known question; empty: not
  // checked.
  std::string shots_digest{};
  std::string shots_question{};  // JSON of that question's item

  GenerationRules generation{};
  std::vector<Metric> metrics{};
};

// Tasks that are reported together.
struct GroupDefinition {
  std::string name{};
  std::string alias{};
  std::string version{};
  std::vector<std::string> members{};  // tasks or groups
  std::vector<std::string> metrics{};  // aggregated over all tasks below; empty: the group only names its members
  bool own = false;
  std::string help{};
};

std::vector<TaskDefinition> built_in_tasks();
std::vector<GroupDefinition> built_in_groups();

// Reads a user's task from a JSON file (docs/evaluation.md). Paths in it are relative to that file. Throws one
// Error(bad_input) that names the file and all its faults.
TaskDefinition read_task_file(const std::string& path);
// Rolling perplexity of a JSONL file's "text" or of a text file, as the task `name`.
TaskDefinition perplexity_of_file(const std::string& path, const std::string& name);
// Task names for those of `names` that are "perplexity:FILE": perplexity_ and the file's name without its ending; if
// several files share that, with the ending and as many folders as make them unique.
std::map<std::string, std::string> perplexity_names(const std::vector<std::string>& names);

}  // namespace shiftron
