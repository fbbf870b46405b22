// Buckets of documents in temporary files.
#include "data/buckets.h"

#include <algorithm>

#include "core/check.h"

namespace shiftron {

DocumentBuckets::DocumentBuckets(const std::string& directory, size_t buckets, const Saved* saved) {
  CHECK(buckets >= 1, "no bucket");
  CHECK(saved == nullptr || (saved->index_bytes.size() == buckets && saved->token_bytes.size() == buckets),
        "saved buckets are not ", buckets);
  for (size_t i = 0; i < buckets; ++i) {
    const std::string path = directory + "/bucket-" + std::to_string(i);
    buckets_.push_back({Spill(path + ".index", saved == nullptr ? 0 : saved->index_bytes[i]),
                        Spill(path + ".tokens", saved == nullptr ? 0 : saved->token_bytes[i]),
                        Spill(path + ".left-out")});
  }
  if (saved == nullptr) return;
  documents_ = saved->documents;
  tokens_ = saved->tokens;
  text_bytes_ = saved->text_bytes;
  has_targets_ = saved->has_targets;
}

DocumentBuckets::Saved DocumentBuckets::save() {
  Saved saved{documents_, tokens_, text_bytes_, has_targets_};
  for (Bucket& bucket : buckets_) {
    bucket.index.start_sync();
    bucket.tokens.start_sync();
  }
  for (Bucket& bucket : buckets_) {
    bucket.index.sync();
    bucket.tokens.sync();
    saved.index_bytes.push_back(bucket.index.bytes());
    saved.token_bytes.push_back(bucket.tokens.bytes());
  }
  return saved;
}

DocumentBuckets::Place DocumentBuckets::add(uint64_t key, const std::vector<int32_t>& tokens, int64_t text_bytes,
                                            const std::vector<int32_t>& targets) {
  if (documents_ == 0) has_targets_ = !targets.empty();
  CHECK(targets.size() == (has_targets_ ? tokens.size() : 0), targets.size(), " targets of ", tokens.size(), " tokens");
  // The bucket number rises with the key: floor(key · buckets / 2^64).
  const auto number = static_cast<size_t>(static_cast<unsigned __int128>(key) * buckets_.size() >> 64);
  Bucket& bucket = buckets_[number];
  const Document document{key, bucket.tokens.bytes() / sizeof(int32_t), static_cast<int64_t>(tokens.size()),
                          text_bytes};
  bucket.index.add(&document, sizeof document);
  bucket.tokens.add(tokens.data(), tokens.size() * sizeof(int32_t));
  bucket.tokens.add(targets.data(), targets.size() * sizeof(int32_t));
  ++documents_;
  tokens_ += document.tokens;
  text_bytes_ += text_bytes;
  return {number, document.first};
}

void DocumentBuckets::finish() {
  for (Bucket& bucket : buckets_) {
    bucket.index.flush();
    bucket.tokens.flush();
  }
}

void DocumentBuckets::leave_out(Place place) {
  buckets_[place.bucket].left_out.add(&place.first, sizeof place.first);
}

void DocumentBuckets::finish_leaving_out() {
  documents_ = tokens_ = text_bytes_ = 0;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    buckets_[bucket].left_out.flush();
    for (const Document& document : sorted(bucket)) {
      ++documents_;
      tokens_ += document.tokens;
      text_bytes_ += document.text_bytes;
    }
  }
}

std::vector<DocumentBuckets::Document> DocumentBuckets::sorted(size_t bucket) const {
  const Spill& index = buckets_[bucket].index;
  auto documents = index.read<Document>();
  const uint64_t values = buckets_[bucket].tokens.bytes() / sizeof(int32_t);
  const uint64_t of_token = has_targets_ ? 2 : 1;
  for (const Document& document : documents) {
    const bool fits = document.tokens >= 0 && document.first <= values &&
                      static_cast<uint64_t>(document.tokens) <= (values - document.first) / of_token;
    if (!fits) throw_crash(index.path(), " has changed since it was written: another process wrote to it");
  }
  if (auto left_out = buckets_[bucket].left_out.read<uint64_t>(); !left_out.empty()) {
    std::sort(left_out.begin(), left_out.end());
    std::erase_if(documents,
                  [&](const Document& document) { return std::ranges::binary_search(left_out, document.first); });
  }
  std::sort(documents.begin(), documents.end(),
            [](const Document& a, const Document& b) { return a.key != b.key ? a.key < b.key : a.first < b.first; });
  return documents;
}

std::vector<int32_t> DocumentBuckets::tokens_of(size_t bucket) const {
  return buckets_[bucket].tokens.read<int32_t>();
}

}  // namespace shiftron
