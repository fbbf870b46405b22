// Puts documents into a random order on disk: into buckets by a random key, then each bucket is sorted in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/spill.h"

namespace shiftron {

// Memory: one bucket, and a buffer for each. The order depends only on the keys, not on the number of buckets.
// Throws Error(crash) if it cannot write or read back.
class DocumentBuckets {
 public:
  struct Document {
    uint64_t key = 0;
    uint64_t first = 0;  // of its tokens within the bucket; its targets follow them
    int64_t tokens = 0;
    int64_t text_bytes = 0;
  };
  struct Place {  // of a document that was added
    size_t bucket = 0;
    uint64_t first = 0;
  };

  // What save() has made durable.
  struct Saved {
    int64_t documents = 0, tokens = 0, text_bytes = 0;
    bool has_targets = false;
    std::vector<uint64_t> index_bytes{}, token_bytes{};  // of each bucket's files
  };

  // Creates files in `directory`, which must exist. With `saved`, continues with the existing files.
  DocumentBuckets(const std::string& directory, size_t buckets, const Saved* saved = nullptr);
  // `targets`: as many as tokens, or none; the same for all documents.
  Place add(uint64_t key, const std::vector<int32_t>& tokens, int64_t text_bytes,
            const std::vector<int32_t>& targets = {});
  // Before leave_out().
  Saved save();
  // Call it before reading, and before leave_out().
  void finish();
  // Removes documents that were added. Call finish_leaving_out() before reading.
  void leave_out(Place place);
  void finish_leaving_out();

  size_t buckets() const { return buckets_.size(); }
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  int64_t text_bytes() const { return text_bytes_; }
  bool has_targets() const { return has_targets_; }
  // A bucket's documents by ascending key; equal keys in the order of adding. The buckets in order give all documents.
  std::vector<Document> sorted(size_t bucket) const;
  // All tokens of a bucket, in the order of adding, each document's targets after its tokens.
  std::vector<int32_t> tokens_of(size_t bucket) const;

 private:
  struct Bucket {
    Spill index;
    Spill tokens;
    Spill left_out;  // `first` of documents
  };
  std::vector<Bucket> buckets_;
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
  int64_t text_bytes_ = 0;
  bool has_targets_ = false;
};

}  // namespace shiftron
