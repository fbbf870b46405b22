// What says that two evaluations asked the same: the harness's SHA-256 of documents, prompts and targets.
#pragma once

#include <span>
#include <string>

#include "evaluate/tasks/task.h"

namespace shiftron {

struct ItemHashes {
  std::string document;  // of its JSON
  std::string prompt;    // of the context of its first request
  std::string target;
};
ItemHashes hashes_of(const Item& item);

// Of the hashes of all items, one behind the other.
std::string task_hash(std::span<const Item> items);

}  // namespace shiftron
