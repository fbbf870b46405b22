// Finds documents of equal content, with bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/hash.h"
#include "data/spill.h"

namespace shiftron {

// Hashes go to buckets on disk; then each bucket is sorted in memory: 40 bytes for each of its documents. Throws
// Error(crash) if it cannot write or read back.
class DuplicateFinder {
 public:
  struct Document {
    uint64_t number = 0;  // in the order of reading
    uint32_t part = 0, bucket = 0;
    uint64_t first = 0;  // these three: where the document is kept, see DocumentBuckets
  };

  // Creates files in `directory`, which must exist. `saved`: what save() returned; continues with the files.
  DuplicateFinder(const std::string& directory, size_t buckets, const std::vector<uint64_t>& saved = {});
  void add(const Hash128& content, const Document& document);
  std::vector<uint64_t> save();  // makes the files durable; their sizes
  // Passes on every document whose content a document with a lower number has. Returns how many there are.
  int64_t find(const std::function<void(const Document&)>& take);

 private:
  std::vector<Spill> buckets_;
};

}  // namespace shiftron
