// Benchmark tasks: the registry, their requests and their files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evaluate/tasks/item.h"
#include "evaluate/tasks/task_definition.h"

namespace shiftron {

struct TaskOptions {
  std::optional<int64_t> fewshot{};      // examples before each item; unset: the task's default
  double limit = 0;                      // items per task: the first n; below 1 a share of them, rounded up; 0: all
  std::optional<int64_t> most_tokens{};  // of a generated text
  bool keep_cmmlu_index = false;         // DatasetOptions::keep_index
};

struct LoadedTask {
  std::string name{};
  TaskDefinition definition{};
  int64_t fewshot = 0;         // examples before each item
  int64_t original_items = 0;  // of the split, before the limit
  std::vector<Item> items{};
  std::vector<std::string> files{};  // that were read

  const std::string& alias() const { return definition.alias.empty() ? name : definition.alias; }
};

// A group of a selection, with its members.
struct TaskGroup {
  GroupDefinition definition{};
  std::vector<std::string> groups{};  // directly below, in order
  std::vector<std::string> tasks{};   // all below, in order
};

struct Selection {
  std::vector<std::string> tasks{};  // each once, in the order requested
  std::vector<TaskGroup> groups{};   // groups with metrics; each before its subgroups
};

struct ListedTask {
  std::string name{};
  std::string help{};
  bool is_group = false;
  bool own = false;                    // not from the harness
  std::string dataset{};               // of the hub
  std::string origin{};                // of the original files
  std::string folder{};                // below --data
  std::vector<std::string> files{};    // candidates, one of which must exist for each split; <part> is a placeholder
  std::vector<std::string> members{};  // of a group
};

class TaskRegistry {
 public:
  TaskRegistry();  // with the built-in tasks

  // Names of tasks and groups, paths of task files (ending with .json), and perplexity:FILE. Throws one
  // Error(bad_input) that names every unknown name and the nearest known one.
  Selection select(const std::vector<std::string>& names);

  // Loads a task's items from the files below `data`. Throws Error(bad_input).
  LoadedTask load(const std::string& name, const std::string& data, const TaskOptions& options = {}) const;

  const TaskDefinition& definition(const std::string& name) const;
  // Groups first, then tasks that are in no group with metrics.
  std::vector<ListedTask> list() const;
  // Adds a task, or replaces the one with the same name.
  void add(TaskDefinition task);

 private:
  const GroupDefinition* group(const std::string& name) const;
  void select_group(const GroupDefinition& group, Selection& selection, TaskGroup* above) const;

  std::vector<TaskDefinition> tasks_;
  std::vector<GroupDefinition> groups_;
};

// Loads the items of a definition, for tests and for tasks in no registry.
LoadedTask load_task(const TaskDefinition& definition, const std::string& data, const TaskOptions& options = {});

}  // namespace shiftron
