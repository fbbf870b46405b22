// Hashes that show whether two evaluations asked the same: the harness's SHA-256 of documents, prompts and targets.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "evaluate/tasks/task.h"

namespace shiftron {

struct ItemHashes {
  std::string document;  // of its JSON
  std::string prompt;    // of its first request's context
  std::string target;
};
ItemHashes hashes_of(const Item& item);

// SHA-256 of the concatenated hashes of all items, as often as the harness writes them: once for each filter of
// answers.
std::string task_hash(std::span<const Item> items, size_t filters = 1);

}  // namespace shiftron
