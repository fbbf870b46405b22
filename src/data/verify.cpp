// Compares a dataset with its hashes, its own description and its tokenizer.
#include "data/verify.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "core/check.h"
#include "core/hash.h"
#include "core/system_error.h"
#include "data/dataset.h"
#include "tokenizer/load_tokenizer.h"

namespace shiftron {
namespace {

constexpr size_t kMostFaults = 100;
constexpr char kAdvice[] = "; restore this file from a copy, or build the dataset again";

// Checks one shard against its record.
class ShardCheck {
 public:
  ShardCheck(const std::string& directory, const DatasetDescription& description, const ShardRecord& record,
             const Tokenizer* tokenizer, int64_t first_token, Progress& progress, std::vector<std::string>& faults)
      : path_(directory + "/" + record.file),
        header_(description.header),
        record_(record),
        tokenizer_(tokenizer),
        first_token_(first_token),
        progress_(progress),
        faults_(faults) {}

  void run() {
    const FileDescriptor file = FileDescriptor::open_for_reading(path_);
    if (file.size() != record_.bytes) {
      return fault(std::to_string(file.size()) + " bytes, but dataset.json says " + std::to_string(record_.bytes));
    }
    check_file_hash(file);
    const Hdf5File hdf5 = Hdf5File::open(path_);
    if (!check_layout(hdf5)) return;
    starts_ = hdf5.read_all<uint64_t>("doc_start", Hdf5Type::u64);
    bytes_ = hdf5.read_all<uint64_t>("doc_bytes", Hdf5Type::u64);
    if (!check_documents()) return;
    text_bytes_of_shard_ = bytes_.back();
    for (const ShardRow row : rows_of(header_)) {
      check_row(file, hdf5, row, [&](uint32_t value, uint64_t position) {
        return row == ShardRow::tokens ? check_token(value, position) : check_target(value, position);
      });
    }
    if (header_.has_targets && counted_targets_ != static_cast<uint64_t>(record_.counted_targets)) {
      fault(std::to_string(counted_targets_) + " targets are counted, but dataset.json says " +
            std::to_string(record_.counted_targets));
    }
  }

  // From /doc_bytes; nothing if unknown.
  std::optional<uint64_t> text_bytes() const { return text_bytes_of_shard_; }

  void fault(const std::string& what) {
    const std::string place = what.find(path_) == std::string::npos ? path_ + ": " : "";
    if (faults_.size() < kMostFaults) faults_.push_back(place + what + kAdvice);
  }

 private:
  void check_file_hash(const FileDescriptor& file) {
    std::vector<char> buffer(size_t{4} << 20);
    HashStream hash;
    for (uint64_t at = 0; at < record_.bytes;) {
      const auto piece = static_cast<size_t>(std::min<uint64_t>(buffer.size(), record_.bytes - at));
      file.read_at(at, buffer.data(), piece);
      hash.update(buffer.data(), piece);
      at += piece;
      progress_.advance(piece);
    }
    if (to_hex(hash.digest_128()) != record_.xxh3_128) {
      fault("the file's hash is " + to_hex(hash.digest_128()) + ", but dataset.json says " + record_.xxh3_128);
    }
  }

  static std::string tokenizer_hash_in(const Hdf5File& hdf5) {
    if (!hdf5.has_attribute("/", "tokenizer_hash")) return "";
    return known_tokenizer_hash(hdf5.text_attribute("/", "tokenizer_hash"));
  }

  // Whether the shard states the same kind of tokenizer and the same choices as dataset.json.
  bool has_settings(const Hdf5File& hdf5) const {
    const bool third = hdf5.integer_attribute("/", "version") > 2;
    if (!third || header_.version() < 3) return third == (header_.version() > 2);
    const TokenizerSettings& settings = header_.tokenizer_settings;
    return hdf5.text_attribute("/", "tokenizer_file") == header_.tokenizer_file &&
           hdf5.integer_attribute("/", "bod_id") == settings.beginning_of_document &&
           hdf5.integer_attribute("/", "special_text") == int64_t{settings.special_text};
  }

  // Compares HDF5's view with that of dataset.json.
  bool check_layout(const Hdf5File& hdf5) {
    const Hdf5Type type = header_.token_type();
    const auto agrees = [&](const char* name, Hdf5Type expected, int64_t count) {
      const Hdf5DatasetInfo info = hdf5.info(name);
      const bool same = info.type == expected && info.shape == std::vector<int64_t>{count};
      if (!same) fault(std::string("/") + name + " is not " + to_string(expected) + " of " + std::to_string(count));
      return same;
    };
    bool good = agrees("doc_start", Hdf5Type::u64, record_.documents + 1);
    good &= agrees("doc_bytes", Hdf5Type::u64, record_.documents + 1);
    for (const ShardRow row : rows_of(header_)) {
      const ShardRowPlace place = place_of(record_, row);
      good &= agrees(place.name, type, record_.tokens);
      good &= agrees(place.hash_name, Hdf5Type::u64, block_count(record_.tokens, type));
      if (hdf5.info(place.name).byte_offset != place.offset ||
          hdf5.info(place.hash_name).byte_offset != place.block_hash_offset) {
        fault(std::string("/") + place.name + " or /" + place.hash_name + " are not where dataset.json says");
        good = false;
      }
    }
    if (tokenizer_hash_in(hdf5) != header_.tokenizer_hash || !has_settings(hdf5) ||
        hdf5.integer_attribute("/", "vocab_size") != header_.vocab_size ||
        hdf5.integer_attribute("/", "eod_id") != header_.end_of_document) {
      fault("it was made with a different tokenizer than dataset.json says");
      good = false;
    }
    return good;
  }

  bool check_documents() {
    const bool rising = std::is_sorted(starts_.begin(), starts_.end()) && std::is_sorted(bytes_.begin(), bytes_.end());
    if (!rising || starts_.front() != 0 || starts_.back() != static_cast<uint64_t>(record_.tokens) ||
        std::adjacent_find(starts_.begin(), starts_.end()) != starts_.end()) {
      fault("/doc_start or /doc_bytes do not increase from 0 to the end");
      return false;
    }
    return true;
  }

  // `check` gets every value of the row and its position; if it returns false, the rest of the row is skipped.
  void check_row(const FileDescriptor& file, const Hdf5File& hdf5, ShardRow row,
                 const std::function<bool(uint32_t value, uint64_t position)>& check) {
    const ShardRowPlace place = place_of(record_, row);
    const auto hashes = hdf5.read_all<uint64_t>(place.hash_name, Hdf5Type::u64);
    if (!place.block_hash_xxh3_128.empty() && hash_of_hashes(hashes) != place.block_hash_xxh3_128) {
      fault(std::string("its /") + place.hash_name + " does not match dataset.json");
    }
    const size_t width = size_of(header_.token_type());
    const uint64_t all = static_cast<uint64_t>(record_.tokens) * width;
    std::vector<char> block(kBlockBytes);
    for (uint64_t begin = 0; begin < all; begin += kBlockBytes) {
      const auto size = static_cast<size_t>(std::min(kBlockBytes, all - begin));
      file.read_at(place.offset + begin, block.data(), size);
      const uint64_t number = begin / kBlockBytes;
      if (xxh3_64(block.data(), size) != hashes[number]) {
        fault("block " + std::to_string(number) + " of /" + place.name + " (bytes " +
              std::to_string(place.offset + begin) + " to " + std::to_string(place.offset + begin + size) +
              ") does not match its hash");
      }
      for (size_t at = 0; at < size; at += width) {
        uint32_t value = 0;
        std::memcpy(&value, block.data() + at, width);
        if (!check(value, (begin + at) / width)) return;
      }
      progress_.advance(size);
    }
  }

  bool check_target(uint32_t target, uint64_t position) {
    const uint32_t not_counted = header_.token_type() == Hdf5Type::u16 ? UINT16_MAX : UINT32_MAX;
    if (target == not_counted) return true;
    ++counted_targets_;
    if (target < static_cast<uint64_t>(header_.vocab_size)) return true;
    fault("target " + std::to_string(target) + " at position " + std::to_string(position) +
          " is not within the vocabulary of " + std::to_string(header_.vocab_size));
    return false;
  }

  // Returns false if continuing would only repeat the fault.
  bool check_token(uint32_t token, uint64_t position) {
    if (token >= static_cast<uint64_t>(header_.vocab_size)) {
      fault("token " + std::to_string(token) + " at position " + std::to_string(position) +
            " is not within the vocabulary of " + std::to_string(header_.vocab_size));
      return false;
    }
    if (tokenizer_ != nullptr) {
      text_bytes_ += static_cast<uint64_t>(tokenizer_->bytes_of(static_cast<int32_t>(token)));
    }
    const bool is_end = token == static_cast<uint32_t>(header_.end_of_document);
    const bool closes = position + 1 == starts_[document_ + 1];
    // In packed data more end tokens may follow a document's own.
    const bool fits = is_end ? closes || header_.pack > 0 : !closes && !ended_;
    if (!fits) {
      fault("document " + std::to_string(document_) + " ends at token " + std::to_string(starts_[document_ + 1]) +
            " according to /doc_start, which contradicts the token at position " + std::to_string(position));
      return false;
    }
    if (is_end && !ended_ && straddles(position)) {
      fault("document " + std::to_string(document_) + " crosses the boundary of a window of " +
            std::to_string(header_.pack) + " tokens");
    }
    ended_ = is_end && !closes;
    if (closes) ++document_;
    if (closes && tokenizer_ != nullptr && text_bytes_ != bytes_[document_]) {
      fault("the text of document " + std::to_string(document_ - 1) +
            " does not have the number of bytes that /doc_bytes says");
      return false;
    }
    return true;
  }

  // Whether the document that ends at `position` lies in two windows of packed data.
  bool straddles(uint64_t position) const {
    const auto pack = static_cast<uint64_t>(header_.pack), before = static_cast<uint64_t>(first_token_);
    return pack > 0 && (before + starts_[document_]) / pack != (before + position) / pack;
  }

  std::string path_;
  const ShardHeader& header_;
  const ShardRecord& record_;
  const Tokenizer* tokenizer_;  // null if the data has none
  int64_t first_token_;         // of the shard, among those of all shards
  Progress& progress_;
  std::vector<std::string>& faults_;
  std::vector<uint64_t> starts_;
  std::vector<uint64_t> bytes_;
  size_t document_ = 0;
  bool ended_ = false;            // the document has its end token, and more of them may follow
  uint64_t counted_targets_ = 0;  // so far
  uint64_t text_bytes_ = 0;       // so far
  std::optional<uint64_t> text_bytes_of_shard_;
};

}  // namespace

VerifyResult verify_dataset(const std::string& directory, const Progress::Output& output) {
  const Dataset dataset(directory);
  const DatasetDescription& description = dataset.description();
  const std::string model = dataset.tokenizer_path();
  VerifyResult result;
  std::unique_ptr<const Tokenizer> tokenizer;
  try {
    if (dataset.tokenizer().is_there()) tokenizer = make_tokenizer(dataset.tokenizer(), model);
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    result.notes.push_back(std::string(error.what()) + "; so lengths of texts were not checked");
  }
  result.shards = static_cast<int64_t>(description.shards.size());
  result.tokens = description.tokens();
  result.documents = description.documents();
  if (tokenizer && (tokenizer->vocab_size() != description.header.vocab_size ||
                    tokenizer->end_of_document() != description.header.end_of_document)) {
    result.faults.push_back(model + ": its vocabulary does not match dataset.json" + kAdvice);
    return result;
  }
  // Files are read for their hashes, then tokens and targets for their content.
  const uint64_t of_token = rows_of(description.header).size() * size_of(description.header.token_type());
  uint64_t bytes = 0;
  for (const ShardRecord& record : description.shards) {
    bytes += record.bytes + static_cast<uint64_t>(record.tokens) * of_token;
  }
  Progress progress("verifying", bytes, "bytes", output);
  std::optional<uint64_t> text_bytes = 0;
  int64_t first_token = 0;
  for (const ShardRecord& record : description.shards) {
    ShardCheck check(directory, description, record, tokenizer.get(), first_token, progress, result.faults);
    first_token += record.tokens;
    try {
      check.run();
    } catch (const SystemError& refusal) {
      if (result.faults.empty()) rethrow_system_error(refusal);  // otherwise the faults found so far would be lost
      result.faults.push_back(std::string(refusal.what()) + "; this shard was not verified");
    } catch (const Error& error) {
      check.fault(error.what());
    }
    text_bytes = text_bytes && check.text_bytes() ? std::optional(*text_bytes + *check.text_bytes()) : std::nullopt;
  }
  if (text_bytes && *text_bytes != static_cast<uint64_t>(description.text_bytes)) {
    result.faults.push_back(directory + "/dataset.json: text_bytes " + std::to_string(description.text_bytes) +
                            ", but its shards hold " + std::to_string(*text_bytes) + kAdvice);
  }
  return result;
}

}  // namespace shiftron
