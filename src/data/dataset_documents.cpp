// Reads borders of documents in pieces, and tokens by whole blocks, because a block is what a hash covers.
#include "data/dataset_documents.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace shiftron {

// Where the documents of a dataset begin, and their text's bytes.
class DatasetDocuments::Borders {
 public:
  explicit Borders(const Dataset& dataset) : dataset_(dataset) {}

  struct Place {
    int64_t first, tokens, text_bytes;
  };
  // The next document; nothing after the last.
  std::optional<Place> next() {
    const std::vector<ShardRecord>& shards = dataset_.description().shards;
    if (at_ == starts_.size() || at_ + 1 == starts_.size()) {
      if (shard_ < shards.size() && read_ == shards[shard_].documents) {
        first_token_ += shards[shard_].tokens;
        ++shard_;
        read_ = 0;
      }
      if (shard_ == shards.size()) return std::nullopt;
      read_piece(shards[shard_]);
    }
    const uint64_t start = starts_[at_], end = starts_[at_ + 1];
    const uint64_t bytes = bytes_[at_], end_bytes = bytes_[at_ + 1];
    ++at_;
    if (end <= start || end > static_cast<uint64_t>(shards[shard_].tokens) || end_bytes < bytes) throw_damaged();
    return Place{first_token_ + static_cast<int64_t>(start), static_cast<int64_t>(end - start),
                 static_cast<int64_t>(end_bytes - bytes)};
  }

 private:
  static constexpr int64_t kPiece = 1 << 16;  // documents

  std::string path() const { return dataset_.directory() + "/" + dataset_.description().shards[shard_].file; }
  [[noreturn]] void throw_damaged() const {
    throw_bad_input(path(), ": its /doc_start or /doc_bytes is damaged; `shiftron data verify` checks the dataset");
  }

  void read_piece(const ShardRecord& shard) {
    const int64_t count = std::min(kPiece, shard.documents - read_);
    const Hdf5File file = Hdf5File::open(path());
    for (const auto& [name, values] : {std::pair{"doc_start", &starts_}, std::pair{"doc_bytes", &bytes_}}) {
      const Hdf5DatasetInfo info = file.info(name);
      if (info.type != Hdf5Type::u64 || info.shape != std::vector<int64_t>{shard.documents + 1}) throw_damaged();
      values->resize(static_cast<size_t>(count + 1));
      file.read_range(name, read_, count + 1, values->data());
    }
    const bool is_first = read_ == 0, is_last = read_ + count == shard.documents;
    if (is_first && starts_.front() != 0) throw_damaged();
    if (is_last && starts_.back() != static_cast<uint64_t>(shard.tokens)) throw_damaged();
    read_ += count;
    at_ = 0;
  }

  const Dataset& dataset_;
  size_t shard_ = 0;
  int64_t first_token_ = 0;               // of the shard
  int64_t read_ = 0;                      // documents of the shard
  std::vector<uint64_t> starts_, bytes_;  // of a piece of them
  size_t at_ = 0;                         // in the piece
};

// Some tokens or targets of a dataset.
class DatasetDocuments::Window {
 public:
  explicit Window(ShardRow row) : row_(row) {}

  void read(Dataset& dataset, int64_t first, int64_t count, int32_t* values) {
    while (count > 0) {
      if (&dataset != dataset_ || first < first_ || first >= first_ + std::ssize(values_)) fill(dataset, first);
      const int64_t piece = std::min(count, first_ + std::ssize(values_) - first);
      std::copy_n(values_.data() + (first - first_), piece, values);
      first += piece;
      values += piece;
      count -= piece;
    }
  }

 private:
  // With the block that holds `first`.
  void fill(Dataset& dataset, int64_t first) {
    const DatasetDescription& description = dataset.description();
    if (&dataset != std::exchange(dataset_, &dataset) || first < begin_) shard_ = 0, begin_ = 0;
    while (first >= begin_ + description.shards[shard_].tokens) begin_ += description.shards[shard_++].tokens;
    const auto per_block = static_cast<int64_t>(kBlockBytes / size_of(description.header.token_type()));
    const int64_t within = (first - begin_) / per_block * per_block;
    first_ = begin_ + within;
    values_.resize(static_cast<size_t>(std::min(per_block, description.shards[shard_].tokens - within)));
    if (row_ == ShardRow::tokens) {
      dataset.read(first_, std::ssize(values_), values_.data(), true);
    } else {
      dataset.read_targets(first_, std::ssize(values_), values_.data(), true);
    }
  }

  const ShardRow row_;
  const Dataset* dataset_ = nullptr;
  size_t shard_ = 0;
  int64_t begin_ = 0;  // token at which the shard begins
  int64_t first_ = 0;  // of values_
  std::vector<int32_t> values_;
};

DatasetDocuments::DatasetDocuments(std::vector<Dataset>& datasets, std::function<bool(int64_t)> takes)
    : datasets_(datasets),
      takes_(std::move(takes)),
      ahead_(std::make_unique<Window>(ShardRow::tokens)),
      tokens_(std::make_unique<Window>(ShardRow::tokens)),
      targets_(std::make_unique<Window>(ShardRow::targets)) {}

DatasetDocuments::~DatasetDocuments() = default;

bool DatasetDocuments::has_targets() const {
  return datasets_.front().has_targets();
}

std::optional<OrderedDocuments::Document> DatasetDocuments::next() {
  for (; dataset_ < datasets_.size(); ++dataset_, borders_.reset()) {
    if (borders_ == nullptr) borders_ = std::make_unique<Borders>(datasets_[dataset_]);
    while (const auto place = borders_->next()) {
      if (takes_ && !takes_(number_++)) continue;
      const int64_t tokens = without_filling(dataset_, place->first, place->tokens);
      return Document{tokens, static_cast<uint64_t>(place->first), dataset_, place->text_bytes};
    }
  }
  return std::nullopt;
}

// How many of the tokens of a document belong to it: all but the end tokens after its first one.
int64_t DatasetDocuments::without_filling(size_t dataset, int64_t first, int64_t tokens) {
  const ShardHeader& header = datasets_[dataset].description().header;
  if (header.pack == 0) return tokens;
  const auto token_at = [&](int64_t at) {
    int32_t token = 0;
    ahead_->read(datasets_[dataset], first + at, 1, &token);
    return token;
  };
  while (tokens > 1 && token_at(tokens - 1) == header.end_of_document &&
         token_at(tokens - 2) == header.end_of_document) {
    --tokens;
  }
  if (tokens > header.pack) {
    throw_bad_input(datasets_[dataset].directory(), ": a document of ", tokens, " tokens, but it is packed for ",
                    header.pack, "; `shiftron data verify` lists every fault");
  }
  return tokens;
}

int64_t DatasetDocuments::read(const Document& document, int64_t first, int64_t count, const Piece& piece) {
  Dataset& dataset = datasets_[document.file];
  const int64_t begin = static_cast<int64_t>(document.first) + first;
  tokens_->read(dataset, begin, count, piece.ids);
  if (piece.targets != nullptr) targets_->read(dataset, begin, count, piece.targets);
  if (first + count == document.tokens && piece.ids[count - 1] != dataset.description().header.end_of_document) {
    throw_bad_input(dataset.directory(), ": the document at token ", document.first, " does not end with the token ",
                    dataset.description().header.end_of_document, "; `shiftron data verify` lists every fault");
  }
  return first == 0 ? document.text_bytes : 0;
}

}  // namespace shiftron
