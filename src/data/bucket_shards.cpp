// Plans and writes shards, bucket by bucket.
#include "data/bucket_shards.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "data/ordered_documents.h"
#include "data/shard_sealing.h"

namespace shiftron {

std::vector<ShardPlan> plan_shards(const DocumentBuckets& buckets, int64_t shard_tokens, int64_t pack, size_t most) {
  std::vector<ShardPlan> plan;
  int64_t position = 0;
  const auto fill = [&](int64_t count) {
    if (count > 0) plan.back().tokens += count;
    position += count;
  };
  for (size_t bucket = 0; bucket < buckets.buckets(); ++bucket) {
    for (const DocumentBuckets::Document& document : buckets.sorted(bucket)) {
      fill(filling(position, document.tokens, pack));
      if (plan.empty() || plan.back().tokens + document.tokens > shard_tokens) {
        if (plan.size() == most) {
          // Any two consecutive shards together hold more than shard_tokens.
          const int64_t enough = 2 * buckets.tokens() / static_cast<int64_t>(most - 1) + 1;
          refuse_shards(shard_tokens, most, std::to_string(enough) + " or more");
        }
        plan.emplace_back();
      }
      plan.back().tokens += document.tokens;
      ++plan.back().documents;
      position += document.tokens;
    }
  }
  fill(filling(position, pack + 1, pack));  // the last window
  return plan;
}

std::vector<ShardRecord> write_shards(const DocumentBuckets& buckets, const ShardHeader& header,
                                      const std::vector<ShardPlan>& plan, const std::string& directory,
                                      ShardJournal* journal, Progress& progress) {
  const std::vector<ShardRecord> known = journal == nullptr ? std::vector<ShardRecord>{} : journal->known();
  ShardSealing shards([&](const ShardRecord& sealed) {
    if (journal != nullptr) journal->add(sealed);
  });
  std::unique_ptr<ShardWriter> writer;  // null for a known shard
  std::string path;
  ShardPlan left;  // of the current shard; without documents between two
  int64_t position = 0;
  const auto fill = [&](int64_t count) {
    if (writer) writer->fill(count);
    left.tokens -= count;
    position += count;
  };
  for (size_t bucket = 0; bucket < buckets.buckets(); ++bucket) {
    std::vector<int32_t> values;
    for (const DocumentBuckets::Document& document : buckets.sorted(bucket)) {
      const size_t shard = shards.shards();
      const bool is_known = shard < known.size();
      if (left.documents == 0) {
        left = plan[shard];
        path = directory + "/" + shard_name(shard);
        if (!is_known) {
          ::unlink(path.c_str());  // what a killed build left
          writer = std::make_unique<ShardWriter>(path, header, left.tokens, left.documents);
        }
      } else {
        fill(filling(position, document.tokens, header.pack));
      }
      if (writer) {
        if (values.empty()) values = buckets.tokens_of(bucket);
        const int32_t* tokens = values.data() + document.first;
        writer->append(tokens, document.tokens, document.text_bytes,
                       header.has_targets ? tokens + document.tokens : nullptr);
        progress.advance(static_cast<uint64_t>(document.tokens));
      }
      left.tokens -= document.tokens;
      position += document.tokens;
      if (--left.documents > 0) continue;
      fill(left.tokens);
      if (is_known) {
        shards.keep(known[shard]);
      } else {
        shards.add(path, writer->close());
        writer.reset();
      }
    }
  }
  return shards.finish();
}

int64_t keep_planned(ShardJournal& journal, const std::vector<ShardPlan>& plan) {
  const std::vector<ShardRecord>& known = journal.known();
  size_t kept = 0;
  int64_t tokens = 0;
  for (; kept < std::min(known.size(), plan.size()); ++kept) {
    if (known[kept].tokens != plan[kept].tokens || known[kept].documents != plan[kept].documents) break;
    tokens += known[kept].tokens;
  }
  journal.cut(kept);
  return tokens;
}

}  // namespace shiftron
