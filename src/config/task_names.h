// Names of benchmarks in `evaluation.tasks` and --tasks: what their form says, without reading the tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shiftron {

inline constexpr uint64_t kLargestTaskFile = uint64_t{64} << 20;  // bytes of a task file, and of an item's own file

// Prefix of a name that asks for the rolling perplexity of a file: "perplexity:FILE".
inline constexpr const char* kPerplexityPrefix = "perplexity:";

// Splits "hellaswag, mmlu" into names.
std::vector<std::string> split_task_names(const std::string& text);
// Whether the name is the path of a task file.
bool is_task_file(const std::string& name);
// Whether a task of this name reads its items from the folder of datasets; false for a task file that cannot be read.
bool reads_dataset(const std::string& name);

}  // namespace shiftron
