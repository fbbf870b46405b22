// Threads get batches of documents: making one document costs less than handing it over.
#include "data/generate/generate.h"

#include <algorithm>
#include <vector>

#include "core/ordered_work.h"

namespace shiftron {
namespace {

constexpr uint64_t kTokensOfBatch = uint64_t{1} << 15;  // approximately
constexpr uint64_t kBytesOfThread = uint64_t{4} << 20;  // of documents that wait, for each thread

struct GeneratedBatch {
  uint64_t first = 0, count = 0;
  std::vector<GeneratedDocument> documents = {};
};

}  // namespace

void generate_documents(const DocumentGenerator& generator, uint64_t count, int threads,
                        const std::function<void(GeneratedDocument&)>& take) {
  const auto longest = static_cast<uint64_t>(generator.longest_document());
  const uint64_t in_batch = std::max<uint64_t>(1, kTokensOfBatch / longest);
  OrderedWork<GeneratedBatch> work(
      threads, static_cast<uint64_t>(std::max(1, threads)) * kBytesOfThread,
      {.work =
           [&](GeneratedBatch& batch, const auto&) {
             batch.documents.reserve(batch.count);
             for (uint64_t i = 0; i < batch.count; ++i) batch.documents.push_back(generator.document(batch.first + i));
           },
       .take = [&](GeneratedBatch& batch) { std::ranges::for_each(batch.documents, take); },
       .progressed = [](const GeneratedBatch&, size_t) {}});
  for (uint64_t first = 0; first < count; first += in_batch) {
    const uint64_t made = std::min(in_batch, count - first);
    work.add({.first = first, .count = made}, made * (2 * sizeof(int32_t) * longest + sizeof(GeneratedDocument)));
  }
  work.finish();
}

}  // namespace shiftron
