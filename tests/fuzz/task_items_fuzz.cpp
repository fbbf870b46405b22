// Bytes as the items of a benchmark: the first byte selects benchmark and format, the others are the file. Accepted
// items can be asked and hashed, and are the same after they are written in the hub's columns.
#include <filesystem>

#include "evaluate/tasks/datasets.h"
#include "evaluate/tasks/task.h"
#include "evaluate/tasks/task_hashes.h"
#include "fuzz/memory_file.h"
#include "scratch.h"

namespace shiftron::fuzz {
namespace {

namespace fs = std::filesystem;

struct Form {
  const TaskDefinition* task;
  std::string data;  // directory; its splits are the input
};

class Forms {
 public:
  Forms() : tasks_(built_in_tasks()) {
    fs::create_directories(scratch_ / "hub");
    for (const char* name :
         {"lambada_openai", "lambada_standard", "winogrande", "hellaswag", "arc_easy", "mmlu_anatomy", "cmmlu_agronomy",
          "hendrycks_math_algebra", "hendrycks_math500", "wikitext", "boolq", "openbookqa", "triviaqa"}) {
      const TaskDefinition& task =
          *std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& t) { return t.name == name; });
      const std::vector<std::string> places = split_paths(task.dataset, task.part, task.split);
      for (size_t place = 0; place < places.size(); ++place) {
        const std::string data = scratch_ / (task.name + "-" + std::to_string(place));
        put(data + "/" + places[place], input_);
        if (!task.shot_split.empty())
          put(data + "/" + split_paths(task.dataset, task.part, task.shot_split)[0], input_);
        all_.push_back({&task, data});
      }
      put(scratch_ / "hub/" + places[0], hub_);
    }
  }
  const Form& form(char chosen) const { return all_[static_cast<uint8_t>(chosen - 'A') % all_.size()]; }
  LoadedTask load(const Form& form, std::string_view bytes) const {
    input_.replace(bytes);
    return load_task(*form.task, form.data);
  }
  // Of the same task's first form.
  LoadedTask load_hub(const TaskDefinition& task, const std::string& text) const {
    hub_.replace(text);
    return load_task(task, scratch_ / "hub");
  }

 private:
  static void put(std::string path, const MemoryFile& file) {
    if (path.ends_with('/')) path += "1.json";
    fs::create_directories(fs::path(path).parent_path());
    fs::create_symlink(file.path(), path);
  }

  MemoryFile input_, hub_;
  Scratch scratch_;
  std::vector<TaskDefinition> tasks_;
  std::vector<Form> all_;
};

}  // namespace

std::string read_input(std::string_view bytes) {
  static const Forms forms;
  if (bytes.empty()) return "no form";
  const Form& form = forms.form(bytes[0]);
  return refusal_of([&] {
    const LoadedTask task = forms.load(form, bytes.substr(1));
    std::string hub;
    for (const Item& item : task.items) {
      require(!item.requests.empty(), "an item asks");
      if (task.definition.kind == TaskKind::multiple_choice) {
        require(item.choices.size() == item.requests.size(), "a request for each choice");
        require(item.gold >= 0 && static_cast<size_t>(item.gold) < item.choices.size(), "one of them is right");
      }
      hub += item.document.dump() + "\n";
    }
    require(task_hash(forms.load_hub(*form.task, hub).items) == task_hash(task.items),
            "the hub's columns are the same items");
  });
}

}  // namespace shiftron::fuzz
