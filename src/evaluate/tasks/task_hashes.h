// Hashes that show whether two evaluations asked the same: the harness's SHA-256 of documents, prompts and targets.
#pragma once

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

// SHA-256 of the concatenated hashes of all items.
std::string task_hash(std::span<const Item> items);

}  // namespace shiftron
