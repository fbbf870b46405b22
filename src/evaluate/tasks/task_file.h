// Tasks that users bring as JSON files.
#pragma once

#include <string>

namespace shiftron {

// Where a name asks for the rolling perplexity of a file: "perplexity:FILE".
inline constexpr const char* kPerplexityOf = "perplexity:";

// Whether the name is the path of a task file.
inline bool is_task_file(const std::string& name) {
  return name.ends_with(".json");
}

// Whether a task of this name looks for its files below DATA.
inline bool is_of_dataset(const std::string& name) {
  return !is_task_file(name) && !name.starts_with(kPerplexityOf);
}

}  // namespace shiftron
