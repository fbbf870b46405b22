// Looks up tasks and groups by name.
#include <algorithm>
#include <map>
#include <set>

#include "config/task_names.h"
#include "core/check.h"
#include "core/nearest_name.h"
#include "evaluate/tasks/datasets.h"
#include "evaluate/tasks/task.h"

namespace shiftron {

std::string harness_name(TaskKind kind) {
  constexpr std::array<const char*, 4> kNames = {"multiple_choice", "loglikelihood", "loglikelihood_rolling",
                                                 "generate_until"};
  return kNames.at(static_cast<size_t>(kind));
}

TaskKind kind_of(ItemScore scorer) {
  switch (scorer) {
    case ItemScore::likeliest:
    case ItemScore::likeliest_per_length:
    case ItemScore::likeliest_per_byte:
      return TaskKind::multiple_choice;
    case ItemScore::log_likelihood:
    case ItemScore::greedy:
      return TaskKind::log_likelihood;
    case ItemScore::same_text:
    case ItemScore::same_math:
    case ItemScore::same_minerva:
      return TaskKind::generate;
    case ItemScore::rolling_words:
    case ItemScore::rolling_bytes:
      return TaskKind::rolling;
  }
  return TaskKind::multiple_choice;
}

TaskRegistry::TaskRegistry() : tasks_(built_in_tasks()), groups_(built_in_groups()) {}

const GroupDefinition* TaskRegistry::group(const std::string& name) const {
  const auto found =
      std::find_if(groups_.begin(), groups_.end(), [&](const GroupDefinition& g) { return g.name == name; });
  return found == groups_.end() ? nullptr : &*found;
}

const TaskDefinition& TaskRegistry::definition(const std::string& name) const {
  const auto found =
      std::find_if(tasks_.begin(), tasks_.end(), [&](const TaskDefinition& t) { return t.name == name; });
  CHECK(found != tasks_.end(), "no task ", name);
  return *found;
}

void TaskRegistry::add(TaskDefinition task) {
  const auto found =
      std::find_if(tasks_.begin(), tasks_.end(), [&](const TaskDefinition& t) { return t.name == task.name; });
  if (found == tasks_.end()) {
    tasks_.push_back(std::move(task));
  } else {
    *found = std::move(task);
  }
}

void TaskRegistry::select_group(const GroupDefinition& group_here, Selection& selection, TaskGroup* above) const {
  TaskGroup entry{group_here, {}, {}};
  const size_t place = selection.groups.size();
  const bool reported = !group_here.metrics.empty();
  const bool is_new = std::none_of(selection.groups.begin(), selection.groups.end(),
                                   [&](const TaskGroup& g) { return g.definition.name == group_here.name; });
  if (reported && is_new) selection.groups.push_back(entry);
  for (const std::string& member : group_here.members) {
    if (const GroupDefinition* inner = group(member)) {
      if (!inner->metrics.empty()) entry.groups.push_back(member);
      select_group(*inner, selection, &entry);
      continue;
    }
    entry.tasks.push_back(member);
    if (std::find(selection.tasks.begin(), selection.tasks.end(), member) == selection.tasks.end()) {
      selection.tasks.push_back(member);
    }
  }
  if (above != nullptr) above->tasks.insert(above->tasks.end(), entry.tasks.begin(), entry.tasks.end());
  if (reported && is_new) selection.groups[place] = entry;
}

Selection TaskRegistry::select(const std::vector<std::string>& names) {
  Selection selection;
  std::string faults, clashes;
  std::vector<std::string> known;
  for (const GroupDefinition& each : groups_) known.push_back(each.name);
  for (const TaskDefinition& each : tasks_) known.push_back(each.name);
  const auto take = [&](const std::string& name) {
    if (std::find(selection.tasks.begin(), selection.tasks.end(), name) == selection.tasks.end())
      selection.tasks.push_back(name);
  };
  const auto bring = [&](TaskDefinition task, const std::string& path) {
    if (std::find(known.begin(), known.end(), task.name) != known.end()) {
      clashes += "\n  " + path + ": a task " + task.name + " already exists; choose another name";
      return;
    }
    take(task.name);
    known.push_back(task.name);
    add(std::move(task));
  };
  const std::map<std::string, std::string> texts = perplexity_names(names);
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) continue;
    if (const GroupDefinition* found = group(name)) {
      select_group(*found, selection, nullptr);
    } else if (std::find(known.begin(), known.end(), name) != known.end()) {
      take(name);
    } else if (is_task_file(name)) {
      bring(read_task_file(name), name);
    } else if (name.starts_with(kPerplexityPrefix)) {
      const std::string path = name.substr(std::string(kPerplexityPrefix).size());
      bring(perplexity_of_file(path, texts.at(name)), path);
    } else {
      faults += "\n  " + name + suggestion(name, known);
    }
  }
  if (!clashes.empty()) clashes = "tasks with the same name:" + clashes;
  if (!faults.empty()) {
    throw_bad_input("no such task:", faults, "\n  shiftron evaluate --tasks list shows all tasks",
                    clashes.empty() ? "" : "\n", clashes);
  }
  if (!clashes.empty()) throw_bad_input(clashes);
  if (selection.tasks.empty()) throw_bad_input("no task is given; shiftron evaluate --tasks list shows all tasks");
  return selection;
}

LoadedTask TaskRegistry::load(const std::string& name, const std::string& data, const TaskOptions& options) const {
  return load_task(definition(name), data, options);
}

std::vector<ListedTask> TaskRegistry::list() const {
  std::vector<ListedTask> listed;
  std::vector<std::string> in_groups;
  const auto places = [](const TaskDefinition& task, const std::string& part, ListedTask& entry) {
    if (task.dataset.empty()) {
      for (const auto& file : task.files) entry.files.push_back(file.second);
      return;
    }
    const DatasetHelp help = dataset_help(task.dataset);
    entry.dataset = help.hub;
    entry.origin = help.origin;
    entry.folder = help.name;
    for (const std::string& split : {task.split, task.shot_split}) {
      if (split.empty()) continue;
      for (const std::string& path : split_paths(split == "shots" ? "minerva_math" : task.dataset, part, split)) {
        entry.files.push_back(path);
      }
    }
  };
  for (const GroupDefinition& each : groups_) {
    ListedTask entry{.name = each.name, .help = each.help, .is_group = true, .own = each.own, .members = each.members};
    std::string leaf = each.members.at(0);
    while (const GroupDefinition* inner = group(leaf)) leaf = inner->members.at(0);
    const TaskDefinition& first = definition(leaf);
    if (!each.metrics.empty()) {
      places(first, "<part>", entry);
      in_groups.insert(in_groups.end(), each.members.begin(), each.members.end());
    }
    listed.push_back(entry);
  }
  for (const TaskDefinition& task : tasks_) {
    if (std::find(in_groups.begin(), in_groups.end(), task.name) != in_groups.end()) continue;
    ListedTask entry{.name = task.name, .help = task.help, .own = task.own};
    places(task, task.part, entry);
    listed.push_back(entry);
  }
  return listed;
}

}  // namespace shiftron
