// Reads the document boundaries of shards.
#include "data/document_samples.h"

#include <algorithm>
#include <bit>

#include "core/check.h"
#include "core/hdf5_file.h"

namespace shiftron {
namespace {

constexpr char kStarts[] = "doc_start";

std::string path_of_shard(const Dataset& dataset, const ShardRecord& shard) {
  return dataset.directory() + "/" + shard.file;
}

[[noreturn]] void throw_bad_starts(const std::string& path) {
  throw_bad_input(path, ": its /", kStarts, " is damaged; `shiftron data verify` checks the dataset");
}

}  // namespace

DocumentLengths document_lengths(const Dataset& dataset, const Progress::Output& output) {
  DocumentLengths lengths;
  const DatasetDescription& description = dataset.description();
  Progress progress("reading lengths", static_cast<uint64_t>(description.documents()), "documents", output);
  for (const ShardRecord& shard : description.shards) {
    const std::string path = path_of_shard(dataset, shard);
    const auto starts = Hdf5File::open(path).read_all<uint64_t>(kStarts, Hdf5Type::u64);
    if (std::ssize(starts) != shard.documents + 1 || starts.back() != static_cast<uint64_t>(shard.tokens)) {
      throw_bad_starts(path);
    }
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      if (starts[i + 1] <= starts[i]) throw_bad_starts(path);
      const auto length = static_cast<int64_t>(starts[i + 1] - starts[i]);
      lengths.shortest = lengths.documents == 0 ? length : std::min(lengths.shortest, length);
      lengths.longest = std::max(lengths.longest, length);
      ++lengths.counts[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length))) - 1];
      ++lengths.documents;
    }
    progress.advance(static_cast<uint64_t>(shard.documents));
  }
  return lengths;
}

std::vector<DocumentSample> sample_documents(Dataset& dataset, int64_t count, int64_t most_tokens) {
  const DatasetDescription& description = dataset.description();
  const int64_t documents = description.documents();
  count = std::min(count, documents);
  std::vector<DocumentSample> samples;
  size_t shard = 0;
  int64_t first_document = 0, first_token = 0;  // of the shard
  for (int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<int64_t>(static_cast<__int128>(documents) * (2 * i + 1) / (2 * count));
    while (number >= first_document + description.shards[shard].documents) {
      first_document += description.shards[shard].documents;
      first_token += description.shards[shard].tokens;
      ++shard;
    }
    const std::string path = path_of_shard(dataset, description.shards[shard]);
    std::array<uint64_t, 2> starts{};
    const Hdf5File file = Hdf5File::open(path);
    if (file.info(kStarts).type != Hdf5Type::u64) throw_bad_starts(path);
    file.read_range(kStarts, number - first_document, 2, starts.data());
    if (starts[1] <= starts[0] || starts[1] > static_cast<uint64_t>(description.shards[shard].tokens)) {
      throw_bad_starts(path);
    }
    DocumentSample sample{.number = number, .length = static_cast<int64_t>(starts[1] - starts[0])};
    sample.tokens.resize(static_cast<size_t>(std::min(sample.length - 1, most_tokens)));
    if (!sample.tokens.empty()) {
      const int64_t first = first_token + static_cast<int64_t>(starts[0]);
      dataset.read(first, std::ssize(sample.tokens), sample.tokens.data(), false);
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace shiftron
