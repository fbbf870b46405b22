// The harness's doc_hash, prompt_hash, target_hash and task_hashes.
#include "evaluate/tasks/task_hashes.h"

#include "core/check.h"
#include "evaluate/tasks/python_json.h"
#include "evaluate/tasks/sha256.h"

namespace shiftron {

ItemHashes hashes_of(const Item& item) {
  CHECK(!item.requests.empty(), item.where, ": an item without requests");
  return {sha256(python::json_text(item.document)), sha256(item.requests[0].context), sha256(item.target)};
}

std::string task_hash(std::span<const Item> items, size_t filters) {
  std::string once;
  for (const Item& item : items) {
    const ItemHashes hashes = hashes_of(item);
    once += hashes.document + hashes.prompt + hashes.target;
  }
  std::string all;
  for (size_t i = 0; i < filters; ++i) all += once;
  return sha256(all);
}

}  // namespace shiftron
