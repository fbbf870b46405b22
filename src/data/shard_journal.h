// ShardJournal: which shards of a build are complete and durable, for a build that continues it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/file.h"
#include "data/save_clock.h"
#include "data/shard.h"

namespace shiftron {

class ShardJournal {
 public:
  // Of the shards in `directory`. Reads what a killed build has written.
  ShardJournal(const std::string& directory, const ShardHeader& header, double save_seconds);
  // The first shards that exist as the journal says.
  const std::vector<ShardRecord>& known() const { return known_; }
  // Keeps only so many.
  void cut(size_t shards);
  // Of sealed shards, in order. It becomes durable at the latest some seconds later.
  void add(const ShardRecord& record);

 private:
  std::string directory_;
  ShardHeader header_;
  SaveClock clock_;
  std::vector<ShardRecord> known_;
  FileDescriptor file_;
  std::string waiting_;  // lines
};

}  // namespace shiftron
