// ShardSealing: makes shards durable and hashes them while the next one is being written.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/shard.h"

namespace shiftron {

// For one thread; has one of its own.
class ShardSealing {
 public:
  // `sealed`: called on the other thread with each sealed shard.
  explicit ShardSealing(std::function<void(const ShardRecord&)> sealed = {}) : sealed_(std::move(sealed)) {}
  ~ShardSealing();
  // Of the shards in the order of ShardWriter::close(). Waits for the shard before. Throws what its sealing threw.
  void add(const std::string& path, ShardRecord record);
  void keep(const ShardRecord& sealed) { records_.push_back(sealed); }  // before add()
  size_t shards() const { return records_.size(); }
  std::vector<ShardRecord> finish();

 private:
  void wait();
  const std::function<void(const ShardRecord&)> sealed_;
  std::vector<ShardRecord> records_;
  std::thread thread_;
  std::exception_ptr failure_;
};

}  // namespace shiftron
