// Reads a task file, and reports all its faults at once.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/foreign_text.h"
#include "core/nearest_name.h"
#include "evaluate/tasks/datasets.h"
#include "evaluate/tasks/python_text.h"
#include "evaluate/tasks/records.h"
#include "evaluate/tasks/task_definition.h"
#include "evaluate/tasks/text_template.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 3> kDraws = {"first", "sampled", "apart"};

class TaskFile {
 public:
  explicit TaskFile(const std::string& path) : path_(path), file_(read_json(path).value) {}

  TaskDefinition read() {
    TaskDefinition task;
    task.own = true;
    task.name = text("name", "");
    if (task.name.empty() ||
        task.name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") !=
            std::string::npos) {
      fault("name", "must consist of letters, digits, _ - and .");
    }
    task.alias = text("alias", "");
    task.help = text("help", "");
    if (file_.contains("version")) task.version = number("version", 1);
    const std::string kind = text("kind", "");
    if (const auto known = from_string<TaskKind>(kind)) {
      task.kind = *known;
      refuse_keys_of_other_kinds(task.kind);
    } else {
      fault("kind", "is \"" + kind + "\", not multiple_choice, log_likelihood, rolling or generate");
    }
    read_places(task);
    read_texts(task);
    read_metrics(task);
    apply_filters(task);
    refuse_unknown_keys();
    if (!faults_.empty())
      throw_bad_input("the task file ", path_, " is invalid:", faults_, "\n  docs/evaluation.md has an example");
    return task;
  }

 private:
  void fault(const std::string& key, const std::string& what) { faults_ += "\n  " + key + " " + what; }

  const Json* find(const std::string& key) {
    asked_.push_back(key);
    const auto found = file_.find(key);
    return found == file_.end() ? nullptr : &*found;
  }

  std::string text(const std::string& key, const std::string& otherwise) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) fault(key, std::string("is a ") + value->type_name() + ", not a text");
    return value->is_string() ? value->get<std::string>() : otherwise;
  }

  double number(const std::string& key, double otherwise) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) fault(key, std::string("is a ") + value->type_name() + ", not a number");
    return value->is_number() ? value->get<double>() : otherwise;
  }

  int64_t count(const std::string& key, int64_t otherwise, int64_t least) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (value->is_number_integer() && value->get<int64_t>() >= least) return value->get<int64_t>();
    fault(key, "must be a whole number of at least " + std::to_string(least));
    return otherwise;
  }

  std::vector<std::string> texts(const std::string& key) {
    const Json* value = find(key);
    std::vector<std::string> result;
    if (value == nullptr) return result;
    for (const Json& part : value->is_array() ? *value : Json::array()) {
      if (part.is_string()) result.push_back(part.get<std::string>());
    }
    if (!value->is_array() || result.size() != value->size() || result.empty()) fault(key, "must be a list of texts");
    return result;
  }

  // A list of texts, or the name of a column that holds one.
  void list_or_column(const std::string& key, std::vector<std::string>& list, std::string& column) {
    const Json* value = find(key);
    if (value != nullptr && value->is_string()) {
      column = value->get<std::string>();
      compile(key, [&] { ItemValue(column, key); });
    } else {
      list = texts(key);
    }
  }

  void compile(const std::string& key, const std::function<void()>& cut) {
    try {
      cut();
    } catch (const Error& error) {
      const std::string message = error.what();
      fault(key, message.starts_with(key + ": ") ? message.substr(key.size() + 2) : message);
    }
  }

  std::string text_template(const std::string& key, const std::string& otherwise = "") {
    const std::string value = text(key, otherwise);
    compile(key, [&] { TextTemplate(value, key); });
    return value;
  }

  void read_places(TaskDefinition& task) {
    task.dataset = text("dataset", "");
    task.part = text("part", "");
    task.split = text("split", "test");
    task.shot_split = text("shots_from", "");
    const Json* files = find("files");
    if (task.dataset.empty() == (files == nullptr)) {
      fault("files", "or dataset must say where items are; give one of them");
      return;
    }
    std::vector<std::string> splits = {task.split};
    if (!task.shot_split.empty()) splits.push_back(task.shot_split);
    if (files == nullptr) {
      check_dataset(task, splits);
      return;
    }
    if (!files->is_object()) {
      fault("files", "must be an object, {\"test\": \"FILE\"}");
      return;
    }
    for (const auto& item : files->items()) {
      if (!item.value().is_string()) {
        fault("files", "has no path for " + item.key());
        continue;
      }
      task.files[item.key()] = std::filesystem::path(path_).parent_path() / item.value().get<std::string>();
    }
    for (const std::string& split : splits) {
      if (!task.files.contains(split)) fault("files", "has no file for " + split);
    }
  }

  void check_dataset(const TaskDefinition& task, const std::vector<std::string>& splits) {
    std::vector<std::string> names;
    for (const DatasetHelp& dataset : datasets()) names.push_back(dataset.name);
    if (std::find(names.begin(), names.end(), task.dataset) == names.end()) {
      fault("dataset", "is \"" + task.dataset + "\", which does not exist" + suggestion(task.dataset, names));
      return;
    }
    for (const std::string& split : splits) {
      if (split_paths(task.dataset, task.part, split).empty())
        fault("dataset", task.dataset + " has no split " + split);
    }
  }

  // Whether its examples come from the items that it asks.
  static bool examples_are_asked_items(const TaskDefinition& task) {
    if (task.shot_split.empty()) return false;
    if (task.shot_split == task.split) return true;
    const auto asked = task.files.find(task.split), shown = task.files.find(task.shot_split);
    if (asked == task.files.end() || shown == task.files.end()) return false;
    std::error_code unreadable;
    return asked->second == shown->second || std::filesystem::equivalent(asked->second, shown->second, unreadable);
  }

  void read_draw(TaskDefinition& task) {
    const bool shows_answers = examples_are_asked_items(task);
    // The harness has the same rule: without a test split it removes the item from its examples.
    const std::string draw = text("draw", shows_answers || task.split != "test" ? "apart" : "sampled");
    const auto found = std::find(kDraws.begin(), kDraws.end(), draw);
    if (found == kDraws.end()) return fault("draw", "is \"" + draw + "\", not first, sampled or apart");
    task.draw = static_cast<ShotDraw>(found - kDraws.begin());
    if (shows_answers && task.draw != ShotDraw::apart)
      fault("draw", "\"" + draw +
                        "\" would show items their own answers, because shots_from contains the questions; use apart");
  }

  void read_texts(TaskDefinition& task) {
    task.description = text_template("description");
    task.context = text_template("context");
    task.contexts = texts_of_templates("contexts");
    list_or_column("choices", task.choices, task.choices_from);
    for (const std::string& choice : task.choices) compile("choices", [&] { TextTemplate(choice, "choices"); });
    task.gold = text_template("gold");
    list_or_column("labels", task.labels, task.labels_from);
    task.target = text_template("target", task.kind == TaskKind::rolling ? "{text}" : "");
    list_or_column("targets", task.targets, task.targets_from);
    for (const std::string& target : task.targets) compile("targets", [&] { TextTemplate(target, "targets"); });
    task.shot_target = text_template("shot_target");
    task.measured = text_template("measured");
    task.delimiter = text("delimiter", " ");
    task.default_shots = count("shots", 0, 0);
    read_draw(task);
    task.generation.until = texts("until");
    task.generation.most_tokens = count("most_tokens", GenerationRules{}.most_tokens, 1);
    task.generation.states_most_tokens = file_.contains("most_tokens");
    check_texts(task);
  }

  std::vector<std::string> texts_of_templates(const std::string& key) {
    std::vector<std::string> values = texts(key);
    for (const std::string& value : values) compile(key, [&] { TextTemplate(value, key); });
    return values;
  }

  void refuse_keys_of_other_kinds(TaskKind kind) {
    std::vector<std::string> unread;
    std::string reader = "a task of kind " + to_string(kind);
    switch (kind) {
      case TaskKind::multiple_choice: {
        const bool has_contexts = file_.contains("contexts");
        unread = {has_contexts ? "context" : "target", "shot_target", "measured"};
        reader += has_contexts ? " with contexts" : " with choices";
        break;
      }
      case TaskKind::log_likelihood:
        unread = {"choices", "contexts", "gold", "labels", "measured"};
        break;
      case TaskKind::generate:
        unread = {"choices", "contexts", "gold", "labels", "measured"};
        break;
      case TaskKind::rolling:
        unread = {"description", "context",   "contexts", "choices",    "gold", "labels",
                  "shot_target", "delimiter", "shots",    "shots_from", "draw"};
        break;
    }
    if (kind != TaskKind::generate) {
      unread.insert(unread.end(),
                    {"until", "most_tokens", "targets", "filters", "ignored", "ignore_case", "ignore_punctuation"});
    }
    for (const std::string& key : unread) {
      if (file_.contains(key)) fault(key, "has no effect in " + reader + "; omit it");
    }
  }

  void check_texts(const TaskDefinition& task) {
    const bool chooses = task.kind == TaskKind::multiple_choice;
    const bool has_choices = !task.choices.empty() || !task.choices_from.empty();
    if (chooses && has_choices == !task.contexts.empty()) fault("choices", "or contexts must be given, but not both");
    if (chooses && task.gold.empty()) fault("gold", "must say which choice is right");
    const bool needs_target = chooses ? !task.contexts.empty() : true;
    const bool has_targets = !task.targets.empty() || !task.targets_from.empty();
    if (has_targets && !task.target.empty()) fault("targets", "or target says what is right; give one of them");
    if (needs_target && task.target.empty() && !has_targets) fault("target", "is missing");
    if (task.contexts.empty() && task.kind != TaskKind::rolling && task.context.empty()) fault("context", "is missing");
    if (task.default_shots > 0 && task.shot_split.empty())
      fault("shots_from", "must name the split that contains the examples");
  }

  bool flag(const std::string& key) {
    const Json* value = find(key);
    if (value != nullptr && !value->is_boolean()) fault(key, "must be true or false");
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }

  void check_pattern(const std::string& key, const std::string& pattern) {
    if (const auto reason = python::pattern_fault(pattern))
      fault(key, "has \"" + printable(pattern) + "\", which is not a regular expression: " + *reason);
  }

  // {"strict-match": {"extract": "#### (.*)", "match": "last", "strip": "left"}, …}
  std::vector<AnswerFilter> read_filters() {
    const Json* value = find("filters");
    if (value == nullptr) return {AnswerFilter{}};
    std::vector<AnswerFilter> filters;
    if (!value->is_object() || value->empty()) {
      fault("filters", "must be an object, {\"NAME\": {\"extract\": \"PATTERN\"}}");
      return filters;
    }
    for (const auto& item : value->items()) filters.push_back(read_filter(item.key(), item.value()));
    return filters;
  }

  AnswerFilter read_filter(const std::string& name, const Json& value) {
    const std::string where = "of \"" + printable(name) + "\" ";
    AnswerFilter filter{.name = name};
    if (name.empty() || name == AnswerFilter{}.name || name.find(',') != std::string::npos)
      fault("filters", "has the name \"" + printable(name) + "\"; choose another, without a comma");
    if (!value.is_object()) {
      fault("filters", where + "must be an object");
      return filter;
    }
    for (const auto& item : value.items()) {
      const std::string given = item.value().is_string() ? item.value().get<std::string>() : item.value().dump();
      const auto side = from_string<Side>(given);
      if (item.key() == "extract" && item.value().is_string() && !given.empty()) {
        filter.extract = given;
        check_pattern("filters", given);
      } else if (item.key() == "match" && (given == "first" || given == "last")) {
        filter.last = given == "last";
      } else if (item.key() == "strip" && side) {
        filter.strip = *side;
      } else {
        fault(
            "filters",
            where + "has " + printable(item.key()) + " " + printable(given) +
                "; a filter has extract (a regular expression), match (first or last) and strip (left, right or both)");
      }
    }
    return filter;
  }

  AnswerComparison read_comparison() {
    AnswerComparison comparison{.ignore_ends = !file_.contains("filters")};
    comparison.ignored = texts("ignored");
    for (const std::string& pattern : comparison.ignored) check_pattern("ignored", pattern);
    comparison.ignore_case = flag("ignore_case");
    comparison.ignore_punctuation = flag("ignore_punctuation");
    return comparison;
  }

  // Each metric of generated texts once for each filter.
  void apply_filters(TaskDefinition& task) {
    const std::vector<AnswerFilter> filters = read_filters();
    const AnswerComparison comparison = read_comparison();
    if (task.kind != TaskKind::generate) return;
    std::vector<Metric> metrics;
    for (const AnswerFilter& filter : filters) {
      for (Metric metric : task.metrics) {
        metric.filter = filter;
        metric.comparison = comparison;
        metrics.push_back(std::move(metric));
      }
    }
    task.metrics = std::move(metrics);
  }

  // The named metrics; without names all that fit the kind of task, except those that need more from a task.
  void read_metrics(TaskDefinition& task) {
    std::vector<Metric> fitting;
    for (const Metric& metric : known_metrics()) {
      if (kind_of(metric.scorer) == task.kind) fitting.push_back(metric);
    }
    const std::vector<std::string> names = texts("metrics");
    if (names.empty()) {
      std::ranges::copy_if(fitting, std::back_inserter(task.metrics), [](const Metric& metric) {
        return metric.scorer != ItemScore::likeliest_per_byte && metric.scorer != ItemScore::same_math &&
               metric.scorer != ItemScore::same_minerva;
      });
    }
    for (const std::string& name : names) {
      const auto found = std::ranges::find(fitting, name, &Metric::name);
      if (found == fitting.end()) {
        std::string known;
        for (const Metric& each : fitting) known += (known.empty() ? "" : ", ") + each.name;
        fault("metrics", "names " + name + "; " + to_string(task.kind) + " has " + known);
      } else if (std::ranges::find(task.metrics, name, &Metric::name) != task.metrics.end()) {
        fault("metrics", "names " + name + " twice");
      } else {
        task.metrics.push_back(*found);
      }
    }
  }

  void refuse_unknown_keys() {
    for (const auto& item : file_.items()) {
      if (std::find(asked_.begin(), asked_.end(), item.key()) == asked_.end()) {
        fault(printable(item.key()), "is not a key of a task file" + suggestion(item.key(), asked_));
      }
    }
  }

  std::string path_;
  Json file_;
  std::vector<std::string> asked_;
  std::string faults_;
};

}  // namespace

TaskDefinition read_task_file(const std::string& path) {
  return TaskFile(path).read();
}

}  // namespace shiftron
