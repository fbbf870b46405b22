// Buckets of documents in temporary files.
#include "data/buckets.h"

#include <algorithm>

#include "core/check.h"

namespace shiftron {
namespace {

constexpr size_t kBuffer = size_t{64} << 10;

}  // namespace

void DocumentBuckets::Spill::add(const void* data, size_t size) {
  const char* begin = static_cast<const char*>(data);
  buffer.insert(buffer.end(), begin, begin + size);
  bytes += size;
  if (buffer.size() >= kBuffer) flush();
}

void DocumentBuckets::Spill::flush() {
  file.append(buffer.data(), buffer.size());
  buffer.clear();
}

DocumentBuckets::DocumentBuckets(const std::string& directory, size_t buckets) {
  CHECK(buckets >= 1, "no bucket");
  for (size_t i = 0; i < buckets; ++i) {
    const std::string path = directory + "/bucket-" + std::to_string(i);
    Bucket bucket;
    bucket.index.file = FileDescriptor::create(path + ".index");
    bucket.tokens.file = FileDescriptor::create(path + ".tokens");
    buckets_.push_back(std::move(bucket));
  }
}

void DocumentBuckets::add(uint64_t key, const std::vector<int32_t>& tokens, int64_t text_bytes,
                          const std::vector<int32_t>& targets) {
  if (documents_ == 0) has_targets_ = !targets.empty();
  CHECK(targets.size() == (has_targets_ ? tokens.size() : 0), targets.size(), " targets of ", tokens.size(), " tokens");
  // The bucket number rises with the key: floor(key · buckets / 2^64).
  const auto number = static_cast<size_t>(static_cast<unsigned __int128>(key) * buckets_.size() >> 64);
  Bucket& bucket = buckets_[number];
  const Document document{key, bucket.tokens.bytes / sizeof(int32_t), static_cast<int64_t>(tokens.size()), text_bytes};
  bucket.index.add(&document, sizeof document);
  bucket.tokens.add(tokens.data(), tokens.size() * sizeof(int32_t));
  bucket.tokens.add(targets.data(), targets.size() * sizeof(int32_t));
  ++documents_;
  tokens_ += document.tokens;
  text_bytes_ += text_bytes;
}

void DocumentBuckets::finish() {
  for (Bucket& bucket : buckets_) {
    bucket.index.flush();
    bucket.tokens.flush();
  }
}

std::vector<DocumentBuckets::Document> DocumentBuckets::sorted(size_t bucket) const {
  const Spill& index = buckets_[bucket].index;
  std::vector<Document> documents(index.bytes / sizeof(Document));
  index.file.read_at(0, documents.data(), index.bytes);
  const uint64_t values = buckets_[bucket].tokens.bytes / sizeof(int32_t);
  const uint64_t of_token = has_targets_ ? 2 : 1;
  for (const Document& document : documents) {
    const bool fits = document.tokens >= 0 && document.first <= values &&
                      static_cast<uint64_t>(document.tokens) <= (values - document.first) / of_token;
    if (!fits) throw_crash(index.file.path(), " has changed since it was written: another process wrote to it");
  }
  std::sort(documents.begin(), documents.end(),
            [](const Document& a, const Document& b) { return a.key != b.key ? a.key < b.key : a.first < b.first; });
  return documents;
}

std::vector<int32_t> DocumentBuckets::tokens_of(size_t bucket) const {
  const Spill& spill = buckets_[bucket].tokens;
  std::vector<int32_t> tokens(spill.bytes / sizeof(int32_t));
  spill.file.read_at(0, tokens.data(), spill.bytes);
  return tokens;
}

}  // namespace shiftron
