// One thread for each shard, at most one at a time.
#include "data/shard_sealing.h"

#include <utility>

#include "core/check.h"
#include "core/thread_without_signals.h"

namespace shiftron {

ShardSealing::~ShardSealing() {
  if (thread_.joinable()) thread_.join();
}

void ShardSealing::add(const std::string& path, ShardRecord record) {
  wait();
  ShardRecord& kept = records_.emplace_back(std::move(record));
  const auto seal = [this, path, &kept] {
    try {
      seal_shard(path, kept);
      if (sealed_) sealed_(kept);
    } catch (...) {
      failure_ = std::current_exception();
    }
  };
  try {
    thread_ = thread_without_signals(seal);
  } catch (const Error&) {  // there is no room for one
    seal();
    wait();
  }
}

std::vector<ShardRecord> ShardSealing::finish() {
  wait();
  return std::move(records_);
}

void ShardSealing::wait() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace shiftron
