// Sorts hashes bucket by bucket.
#include "data/duplicates.h"

#include <algorithm>
#include <tuple>

#include "core/check.h"

namespace shiftron {
namespace {

struct Record {
  Hash128 content;
  DuplicateFinder::Document document;
};

}  // namespace

DuplicateFinder::DuplicateFinder(const std::string& directory, size_t buckets, const std::vector<uint64_t>& saved) {
  CHECK(buckets >= 1, "no bucket");
  CHECK(saved.empty() || saved.size() == buckets, "saved hashes of ", saved.size(), " buckets");
  for (size_t i = 0; i < buckets; ++i) {
    buckets_.emplace_back(directory + "/bucket-" + std::to_string(i) + ".hashes", saved.empty() ? 0 : saved[i]);
  }
}

std::vector<uint64_t> DuplicateFinder::save() {
  std::vector<uint64_t> bytes;
  for (Spill& bucket : buckets_) bucket.start_sync();
  for (Spill& bucket : buckets_) {
    bucket.sync();
    bytes.push_back(bucket.bytes());
  }
  return bytes;
}

void DuplicateFinder::add(const Hash128& content, const Document& document) {
  const Record record{content, document};
  buckets_[content.high % buckets_.size()].add(&record, sizeof record);
}

int64_t DuplicateFinder::find(const std::function<void(const Document&)>& take) {
  int64_t found = 0;
  for (Spill& bucket : buckets_) {
    bucket.flush();
    std::vector<Record> records = bucket.read<Record>();
    std::ranges::sort(records, {}, [](const Record& record) {
      return std::tuple(record.content.high, record.content.low, record.document.number);
    });
    for (size_t i = 1; i < records.size(); ++i) {
      if (records[i].content != records[i - 1].content) continue;
      take(records[i].document);
      ++found;
    }
  }
  return found;
}

}  // namespace shiftron
