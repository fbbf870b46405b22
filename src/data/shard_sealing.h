// ShardSealing: makes shards durable and hashes them while the next one is being written.
#pragma once

#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "data/shard.h"

namespace shiftron {

// For one thread; has one of its own.
class ShardSealing {
 public:
  ~ShardSealing();
  // Of the shards in the order of ShardWriter::close(). Waits for the shard before. Throws what its sealing threw.
  void add(const std::string& path, ShardRecord record);
  size_t shards() const { return records_.size(); }
  std::vector<ShardRecord> finish();

 private:
  void wait();
  std::vector<ShardRecord> records_;
  std::thread thread_;
  std::exception_ptr failure_;
};

}  // namespace shiftron
