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

}  // namespace shiftron
