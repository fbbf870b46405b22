// Splits names, and reads where a task file's items come from.
#include "config/task_names.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/file.h"

namespace shiftron {

std::vector<std::string> split_task_names(const std::string& text) {
  constexpr const char* kBlanks = " \t\r\n";
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t first = part.find_first_not_of(kBlanks);
    if (first != std::string::npos) names.push_back(part.substr(first, part.find_last_not_of(kBlanks) + 1 - first));
    begin = end + 1;
  }
  return names;
}

bool is_task_file(const std::string& name) {
  return name.ends_with(".json") && !name.starts_with(kPerplexityPrefix);
}

bool reads_dataset(const std::string& name) {
  if (name.starts_with(kPerplexityPrefix)) return false;
  if (!is_task_file(name)) return true;
  try {
    const nlohmann::json task = nlohmann::json::parse(read_file(name, kLargestTaskFile), nullptr, false);
    return task.is_object() && task.contains("dataset");
  } catch (const Error&) {  // the reader of tasks says why
    return false;
  }
}

}  // namespace shiftron
