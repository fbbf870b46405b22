// Bytes as a user's task file. An accepted task asks the items of a file, or says what they lack.
#include "evaluate/tasks/task.h"
#include "evaluate/tasks/task_hashes.h"
#include "fuzz/memory_file.h"
#include "scratch.h"

namespace shiftron::fuzz {

std::string read_input(std::string_view bytes) {
  static const Scratch scratch;
  static const std::string items = scratch.write(
      "items.jsonl",
      R"({"question": " Where is it_ ?\n", "options": ["Lyon", "Paris"], "right": 1, "letter": "B", "a": "x", "b": "y", "text": "a b . c"})"
      "\n"
      R"({"question": "And that?", "options": ["4", "5", "6"], "right": 0, "letter": "A", "a": "", "b": "z", "text": "d"})"
      "\n"
      R"({"question": "{}", "options": ["大", "é"], "right": 1, "n": 1.0, "letter": "B", "a": "_", "b": " ", "text": "\n"})"
      "\n");
  const MemoryFile input(bytes);
  return refusal_of([&] {
    TaskDefinition task = read_task_file(input.path());
    require(!task.name.empty() && !task.metrics.empty(), "a task has a name and metrics");
    for (auto& [split, file] : task.files) file = items;  // no file of this machine is read
    task.shots_digest.clear();
    const LoadedTask loaded = load_task(task, scratch.path());
    for (const Item& item : loaded.items) require(!item.requests.empty(), "an item asks");
    require(task_hash(loaded.items).size() == 64, "items have a hash");
  });
}

}  // namespace shiftron::fuzz
