// From files to requests.
#include "evaluate/tasks/task.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "data/documents.h"
#include "evaluate/tasks/datasets.h"
#include "evaluate/tasks/preparation.h"
#include "evaluate/tasks/python_literal.h"
#include "evaluate/tasks/python_random.h"
#include "evaluate/tasks/python_text.h"
#include "evaluate/tasks/sha256.h"
#include "evaluate/tasks/text_template.h"

namespace shiftron {
namespace {

constexpr uint64_t kShotSeed = 1234;
constexpr const char* kBetweenShots = "\n\n";

// The templates of a definition, parsed once.
class Prompts {
 public:
  explicit Prompts(const TaskDefinition& task)
      : task_(task),
        description_(task.description, task.name),
        context_(task.context, task.name),
        gold_(task.gold, task.name),
        target_(task.target, task.name),
        shot_target_(task.shot_target.empty() ? task.target : task.shot_target, task.name),
        measured_(task.measured.empty() ? task.target : task.measured, task.name) {
    for (const std::string& text : task.contexts) contexts_.emplace_back(text, task.name);
    for (const std::string& text : task.choices) choices_.emplace_back(text, task.name);
    for (const std::string& text : task.targets) targets_.emplace_back(text, task.name);
    if (!task.targets_from.empty()) targets_from_ = ItemValue(task.targets_from, task.name);
    if (!task.choices_from.empty()) choices_from_ = ItemValue(task.choices_from, task.name);
    if (!task.labels_from.empty()) labels_from_ = ItemValue(task.labels_from, task.name);
  }

  // An example: question and right answer.
  std::string shot(const Record& record) const {
    const auto& [item, where] = record;
    std::string question, answer;
    if (task_.kind != TaskKind::multiple_choice) {
      question = context_.of(item, where);
      answer = has_targets() && task_.shot_target.empty() ? targets_of(record)[0] : shot_target_.of(item, where);
    } else if (!contexts_.empty()) {
      question = contexts_[gold(record, contexts_.size())].of(item, where);
      answer = target_.of(item, where);
    } else {
      const std::vector<std::string> choices = choices_of(record);
      return context_.of(item, where) + task_.delimiter + choices[gold(record, choices.size())] + kBetweenShots;
    }
    // Without an answer the harness ends the example with its question. A choice always counts as an answer.
    return answer.empty() ? question : question + task_.delimiter + answer + kBetweenShots;
  }

  std::string before(const Record& record, const std::string& shots) const {
    return description_.of(record.value, record.where) + shots;
  }

  std::string prompt(const Record& record, const std::string& shots) const {
    return before(record, shots) + context_.of(record.value, record.where);
  }

  Item item(const Record& record, const std::string& shots) const {
    Item result;
    result.document = record.value;
    result.where = record.where;
    switch (task_.kind) {
      case TaskKind::multiple_choice:
        ask_choices(record, shots, result);
        break;
      case TaskKind::log_likelihood:
        result.target = target_.of(record.value, record.where);
        result.requests = {{RequestKind::log_likelihood, prompt(record, shots), result.target}};
        break;
      case TaskKind::generate:
        result.answers = targets_of(record);
        result.target = has_targets() ? python::repr(result.answers) : python::target_text(result.answers[0]);
        result.requests = {{RequestKind::generate, prompt(record, shots), "", task_.generation}};
        break;
      case TaskKind::rolling: {
        result.target = target_.of(record.value, record.where);
        const std::string measured = measured_.of(record.value, record.where);
        result.words = static_cast<double>(python::count_split_by_space(measured));
        result.bytes = static_cast<double>(measured.size());
        result.requests = {{RequestKind::rolling, result.target, ""}};
        break;
      }
    }
    return result;
  }

 private:
  void ask_choices(const Record& record, const std::string& shots, Item& result) const {
    const auto& [document, where] = record;
    if (contexts_.empty()) {
      result.choices = choices_of(record);
      const std::string context = prompt(record, shots);
      for (const std::string& choice : result.choices) {
        result.requests.push_back({RequestKind::log_likelihood, context, task_.delimiter + choice});
      }
    } else {
      const std::string rest = target_.of(document, where);
      for (const TextTemplate& context : contexts_) {
        result.choices.push_back(context.of(document, where));
        result.requests.push_back(
            {RequestKind::log_likelihood, before(record, shots) + result.choices.back(), task_.delimiter + rest});
      }
      result.target = rest;
    }
    result.gold = static_cast<int64_t>(gold(record, result.choices.size()));
    if (task_.target_is_choice) {
      result.target = result.choices[static_cast<size_t>(result.gold)];
    } else if (contexts_.empty()) {
      result.target = std::to_string(result.gold);
    }
  }

  // Of a list in the item, or of templates.
  static std::vector<std::string> texts_of(const Record& record, const ItemValue& list,
                                           const std::vector<TextTemplate>& templates) {
    if (!list.text().empty()) return list.texts_of(record.value, record.where);
    std::vector<std::string> texts;
    for (const TextTemplate& text : templates) texts.push_back(text.of(record.value, record.where));
    return texts;
  }

  std::vector<std::string> choices_of(const Record& record) const { return texts_of(record, choices_from_, choices_); }

  bool has_targets() const { return !task_.targets.empty() || !task_.targets_from.empty(); }

  // All right answers.
  std::vector<std::string> targets_of(const Record& record) const {
    if (has_targets()) return texts_of(record, targets_from_, targets_);
    return {target_.of(record.value, record.where)};
  }

  size_t gold(const Record& record, size_t choices) const {
    const std::string text = gold_.of(record.value, record.where);
    std::vector<std::string> labels = task_.labels;
    if (!task_.labels_from.empty()) labels = labels_from_.texts_of(record.value, record.where);
    size_t index = choices;
    std::string expected = "a number from 0 to " + std::to_string(choices - 1);
    if (labels.empty()) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
      if (error != std::errc() || end != text.data() + text.size()) index = choices;
    } else {
      index = static_cast<size_t>(std::find(labels.begin(), labels.end(), text) - labels.begin());
      expected = "one of";
      for (size_t i = 0; i < std::min(labels.size(), choices); ++i) expected += " " + labels[i];
      if (labels.size() > choices) expected += " of its " + std::to_string(choices) + " choices";
    }
    if (index >= choices) {
      throw_bad_input(record.where, ": the right answer is \"", text, "\", not ", expected,
                      text.empty() ? "; items without answers cannot be scored: use another split" : "");
    }
    return index;
  }

  const TaskDefinition& task_;
  TextTemplate description_, context_, gold_, target_, shot_target_, measured_;
  std::vector<TextTemplate> contexts_, choices_, targets_;
  ItemValue choices_from_, labels_from_, targets_from_;
};

std::vector<Record> read_file_of(const TaskDefinition& task, const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension();
  if (ending == ".csv") return read_csv_records(path);
  if (task.kind == TaskKind::rolling) {
    return kind_of_file(path) == InputKind::text ? std::vector<Record>{read_text(path)} : read_jsonl(path);
  }
  if (ending == ".txt" || ending == ".md") return read_lines(path);
  return read_jsonl(path);
}

Split split_of(const TaskDefinition& task, const std::string& split, const std::string& data,
               const TaskOptions& options) {
  const std::string user = "the task " + task.name;
  if (task.dataset.empty()) {
    const auto file = task.files.find(split);
    CHECK(file != task.files.end(), task.name, " has no file of the split ", split);
    Split result{read_file_of(task, file->second), {file->second}};
    if (result.records.empty()) throw_bad_input(file->second, " contains no items");
    return result;
  }
  const std::string dataset = split == "shots" ? "minerva_math" : task.dataset;
  return read_split(dataset, task.part, split, data, user, {.keep_index = options.keep_cmmlu_index});
}

// Draws the examples of the items, one item after the other.
class Shots {
 public:
  Shots(const TaskDefinition& task, const Prompts& prompts, Split pool, int64_t count)
      : task_(task), prompts_(prompts), pool_(std::move(pool)), count_(count) {
    const int64_t most = size() - (task.draw == ShotDraw::apart ? 1 : 0);
    if (count > most) {
      throw_bad_input(pool_.files[0], " contains ", size(), " items, enough for ", most,
                      " examples before each item of ", task.name, ", but not for ", count,
                      "; use a smaller --fewshot");
    }
    if (!task.shots_digest.empty()) check_digest();
  }

  std::string before(const Record& record) {
    std::string text;
    for (const int64_t number : drawn(record)) text += prompts_.shot(pool_.records[static_cast<size_t>(number)]);
    return text;
  }

 private:
  int64_t size() const { return static_cast<int64_t>(pool_.records.size()); }

  std::vector<int64_t> drawn(const Record& record) {
    std::vector<int64_t> numbers;
    if (task_.draw == ShotDraw::first) {
      for (int64_t i = 0; i < count_; ++i) numbers.push_back(i);
      return numbers;
    }
    if (task_.draw == ShotDraw::sampled) return random_.sample(size(), count_);
    const auto is_item = [&](int64_t number) {
      return pool_.records[static_cast<size_t>(number)].value == record.value;
    };
    numbers = random_.sample(size(), count_ + 1);
    std::erase_if(numbers, is_item);
    if (static_cast<int64_t>(numbers.size()) >= count_) {
      numbers.resize(static_cast<size_t>(count_));
      return numbers;
    }
    // The pool contains the item more than once, and more than one of them was drawn.
    std::vector<int64_t> others;
    for (int64_t i = 0; i < size(); ++i) {
      if (!is_item(i)) others.push_back(i);
    }
    if (static_cast<int64_t>(others.size()) < count_) {
      throw_bad_input(record.where, ": ", count_, " examples are needed, but only ", others.size(), " items of ",
                      pool_.files[0], " differ from this one");
    }
    numbers = random_.sample(static_cast<int64_t>(others.size()), count_);
    for (int64_t& number : numbers) number = others[static_cast<size_t>(number)];
    return numbers;
  }

  void check_digest() const {
    std::string text;
    for (const Record& record : pool_.records) text += prompts_.shot(record);
    const Record question{nlohmann::ordered_json::parse(task_.shots_question), task_.name};
    const std::string digest = sha256(prompts_.prompt(question, text));
    if (digest != task_.shots_digest) {
      throw_bad_input(pool_.files[0], ": these are not the examples of ", task_.name, " ", task_.version,
                      " in the harness: SHA-256 of the prompt for ", task_.shots_question, " is ", digest, ", not ",
                      task_.shots_digest, "; write its list_fewshot_samples() as JSONL, problem and solution");
    }
  }

  const TaskDefinition& task_;
  const Prompts& prompts_;
  Split pool_;
  int64_t count_;
  python::Random random_{kShotSeed};
};

int64_t shots_of(const TaskDefinition& task, const TaskOptions& options) {
  const int64_t count = options.fewshot.value_or(task.default_shots);
  if (count < 0) throw_bad_input("--fewshot ", count, ": must be at least 0");
  if (task.kind == TaskKind::rolling) return 0;  // a text has nothing in front of it
  if (count > 0 && task.shot_split.empty()) {
    throw_bad_input(task.name, " has no examples other than its questions, so --fewshot ", count,
                    " is not possible; use --fewshot 0");
  }
  return count;
}

int64_t limited(int64_t items, double limit) {
  if (!(limit >= 0)) throw_bad_input("--limit ", limit, ": must be a number of items, or a fraction below 1");
  if (limit == 0) return items;
  const double wanted = limit < 1 ? std::ceil(static_cast<double>(items) * limit) : std::floor(limit);
  return static_cast<int64_t>(std::min(static_cast<double>(items), wanted));
}

// Refuses a task without text: likelihoods are divided by its size.
void refuse_without_text(const LoadedTask& task) {
  if (task.definition.kind != TaskKind::rolling) return;
  const bool empty = std::ranges::all_of(task.items, [](const Item& item) { return item.bytes == 0; });
  if (empty) throw_bad_input(task.files.at(0), " contains no text, so its perplexity is undefined");
}

}  // namespace

LoadedTask load_task(const TaskDefinition& definition, const std::string& data, const TaskOptions& options) {
  LoadedTask task{.name = definition.name, .definition = definition};
  if (options.most_tokens) {
    task.definition.generation.most_tokens = *options.most_tokens;
    task.definition.generation.states_most_tokens = true;
  }
  task.fewshot = shots_of(definition, options);
  const Prompts prompts(task.definition);

  Split split = split_of(definition, definition.split, data, options);
  task.files = split.files;
  task.original_items = static_cast<int64_t>(split.records.size());
  split.records.resize(static_cast<size_t>(limited(task.original_items, options.limit)));
  for (Record& record : split.records) prepare(definition.preparation, record);

  std::optional<Shots> shots;
  if (task.fewshot > 0) {
    Split pool = split_of(definition, definition.shot_split, data, options);
    task.files.insert(task.files.end(), pool.files.begin(), pool.files.end());
    if (definition.shots_digest.empty()) {
      for (Record& record : pool.records) prepare(definition.preparation, record);
    }
    shots.emplace(task.definition, prompts, std::move(pool), task.fewshot);
  }
  for (const Record& record : split.records) {
    Item item = prompts.item(record, shots ? shots->before(record) : "");
    item.number = static_cast<int64_t>(task.items.size());
    task.items.push_back(std::move(item));
  }
  refuse_without_text(task);
  return task;
}

}  // namespace shiftron
