// Reads a task file, and reports all its faults at once.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "config/task_names.h"
#include "core/check.h"
#include "core/hash.h"
#include "core/nearest_name.h"
#include "evaluate/tasks/datasets.h"
#include "evaluate/tasks/records.h"
#include "evaluate/tasks/task_definition.h"
#include "evaluate/tasks/text_template.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 3> kDraws = {"first", "sampled", "apart"};

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
    const std::string draw = text("draw", shows_answers ? "apart" : "sampled");
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
        unread = {has_contexts ? "context" : "target", "shot_target", "measured", "until", "most_tokens"};
        reader += has_contexts ? " with contexts" : " with choices";
        break;
      }
      case TaskKind::log_likelihood:
        unread = {"choices", "contexts", "gold", "labels", "measured", "until", "most_tokens"};
        break;
      case TaskKind::generate:
        unread = {"choices", "contexts", "gold", "labels", "measured"};
        break;
      case TaskKind::rolling:
        unread = {"description", "context", "contexts",   "choices", "gold",  "labels",     "shot_target",
                  "delimiter",   "shots",   "shots_from", "draw",    "until", "most_tokens"};
        break;
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
    if (needs_target && task.target.empty()) fault("target", "is missing");
    if (task.contexts.empty() && task.kind != TaskKind::rolling && task.context.empty()) fault("context", "is missing");
    if (task.default_shots > 0 && task.shot_split.empty())
      fault("shots_from", "must name the split that contains the examples");
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

// Made of the file's name without its ending, or of the last `parts` parts of its path.
std::string perplexity_name(const std::string& path, size_t parts) {
  std::string name = std::filesystem::path(path).stem();
  if (parts > 0) {
    std::vector<std::string> all;
    for (const std::filesystem::path& part : std::filesystem::path(path).lexically_normal()) all.push_back(part);
    name.clear();
    for (size_t i = all.size() - std::min(parts, all.size()); i < all.size(); ++i) {
      name += (name.empty() ? "" : "_") + all[i];
    }
  }
  const auto is_odd = [](unsigned char c) { return c < 0x80 && !std::isalnum(c) && c != '-' && c != '.'; };
  std::replace_if(name.begin(), name.end(), is_odd, '_');
  for (size_t i = 0; i < name.size();) {  // JSON must be UTF-8
    const size_t length = utf8_length(std::string_view(name).substr(i));
    if (length == 0) name[i] = '_';
    i += std::max<size_t>(length, 1);
  }
  return "perplexity_" + name;
}

}  // namespace

std::map<std::string, std::string> perplexity_names(const std::vector<std::string>& names) {
  constexpr size_t kMostParts = 64;
  std::map<std::string, std::string> called;
  const auto path_of = [](const std::string& name) { return name.substr(std::string(kPerplexityPrefix).size()); };
  for (const std::string& name : names) {
    if (name.starts_with(kPerplexityPrefix)) called[name] = perplexity_name(path_of(name), 0);
  }
  for (size_t parts = 1; parts <= kMostParts; ++parts) {
    std::map<std::string, int> users;
    for (const auto& [name, task] : called) ++users[task];
    for (auto& [name, task] : called) {
      if (users[task] == 1) continue;
      task = perplexity_name(path_of(name), parts) + (parts == kMostParts ? "_" + to_hex(xxh3_64(name)) : "");
    }
  }
  return called;
}

TaskDefinition read_task_file(const std::string& path) {
  return TaskFile(path).read();
}

TaskDefinition perplexity_of_file(const std::string& path, const std::string& name) {
  TaskDefinition task{.name = name,
                      .own = true,
                      .help = "the text of " + path,
                      .kind = TaskKind::rolling,
                      .files = {{"test", path}},
                      .target = "{text}"};
  for (const Metric& metric : known_metrics()) {
    if (kind_of(metric.scorer) == TaskKind::rolling) task.metrics.push_back(metric);
  }
  return task;
}

}  // namespace shiftron
