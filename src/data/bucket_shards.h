// From buckets to shards: which documents each shard holds, and its file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/progress.h"
#include "data/buckets.h"
#include "data/shard_journal.h"

namespace shiftron {

struct ShardPlan {
  int64_t tokens = 0;
  int64_t documents = 0;
};

// Whole documents, in order, up to `shard_tokens` each; a longer document gets a shard of its own. Tokens that fill a
// window count with the document before. Throws Error(bad_input) for more than `most` shards.
std::vector<ShardPlan> plan_shards(const DocumentBuckets& buckets, int64_t shard_tokens, int64_t pack, size_t most);

// Cuts what `journal` knows after the first shards that are as planned. Returns their tokens.
int64_t keep_planned(ShardJournal& journal, const std::vector<ShardPlan>& plan);

// Writes the shards in `directory`, but not those that `journal` knows. journal: null = none.
std::vector<ShardRecord> write_shards(const DocumentBuckets& buckets, const ShardHeader& header,
                                      const std::vector<ShardPlan>& plan, const std::string& directory,
                                      ShardJournal* journal, Progress& progress);

}  // namespace shiftron
