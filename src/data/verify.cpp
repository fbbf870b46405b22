// Holds a dataset against its hashes, its own description and its tokenizer.
#include "data/verify.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/check.h"
#include "core/hash.h"
#include "core/system_error.h"
#include "data/dataset.h"
#include "data/tokenizer.h"

namespace shiftron {
namespace {

constexpr size_t kMostFaults = 100;
constexpr char kAdvice[] = "; restore this file from a copy, or build the dataset again";

// One shard against its record.
class ShardCheck {
 public:
  ShardCheck(const std::string& directory, const DatasetDescription& description, const ShardRecord& record,
             const Tokenizer& tokenizer, Progress& progress, std::vector<std::string>& faults)
      : path_(directory + "/" + record.file),
        header_(description.header),
        record_(record),
        tokenizer_(tokenizer),
        progress_(progress),
        faults_(faults) {}

  void run() {
    const FileDescriptor file = FileDescriptor::open_for_reading(path_);
    if (file.size() != record_.bytes) {
      return fault(std::to_string(file.size()) + " bytes, dataset.json says " + std::to_string(record_.bytes));
    }
    check_file_hash(file);
    const Hdf5File hdf5 = Hdf5File::open(path_);
    if (!check_layout(hdf5)) return;
    starts_ = hdf5.read_all<uint64_t>("doc_start", Hdf5Type::u64);
    bytes_ = hdf5.read_all<uint64_t>("doc_bytes", Hdf5Type::u64);
    block_hashes_ = hdf5.read_all<uint64_t>("block_hash", Hdf5Type::u64);
    if (!record_.block_hash_xxh3_128.empty() && hash_of_hashes(block_hashes_) != record_.block_hash_xxh3_128) {
      fault("its /block_hash is not the one that dataset.json names");
    }
    if (!check_documents()) return;
    text_bytes_of_shard_ = bytes_.back();
    check_tokens(file);
  }

  // By /doc_bytes; nothing where that cannot be told.
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
      fault("the file's hash is " + to_hex(hash.digest_128()) + ", dataset.json says " + record_.xxh3_128);
    }
  }

  // HDF5's view against dataset.json's.
  bool check_layout(const Hdf5File& hdf5) {
    const Hdf5Type type = header_.token_type();
    const auto agrees = [&](const char* name, Hdf5Type expected, int64_t count) {
      const Hdf5DatasetInfo info = hdf5.info(name);
      const bool same = info.type == expected && info.shape == std::vector<int64_t>{count};
      if (!same) fault(std::string("/") + name + " is not " + to_string(expected) + " of " + std::to_string(count));
      return same;
    };
    bool good = agrees("tokens", type, record_.tokens);
    good &= agrees("doc_start", Hdf5Type::u64, record_.documents + 1);
    good &= agrees("doc_bytes", Hdf5Type::u64, record_.documents + 1);
    good &= agrees("block_hash", Hdf5Type::u64, block_count(record_.tokens, type));
    if (hdf5.info("tokens").byte_offset != record_.tokens_offset ||
        hdf5.info("block_hash").byte_offset != record_.block_hash_offset) {
      fault("/tokens or /block_hash do not lie where dataset.json says");
      good = false;
    }
    if (hdf5.text_attribute("/", "tokenizer_hash") != header_.tokenizer_hash ||
        hdf5.integer_attribute("/", "vocab_size") != header_.vocab_size ||
        hdf5.integer_attribute("/", "eod_id") != header_.end_of_document) {
      fault("made with another tokenizer than dataset.json says");
      good = false;
    }
    return good;
  }

  bool check_documents() {
    const bool rising = std::is_sorted(starts_.begin(), starts_.end()) && std::is_sorted(bytes_.begin(), bytes_.end());
    if (!rising || starts_.front() != 0 || starts_.back() != static_cast<uint64_t>(record_.tokens) ||
        std::adjacent_find(starts_.begin(), starts_.end()) != starts_.end()) {
      fault("/doc_start or /doc_bytes do not rise from 0 to the end");
      return false;
    }
    return true;
  }

  void check_tokens(const FileDescriptor& file) {
    const size_t width = size_of(header_.token_type());
    const uint64_t all = static_cast<uint64_t>(record_.tokens) * width;
    std::vector<char> block(kBlockBytes);
    for (uint64_t begin = 0; begin < all; begin += kBlockBytes) {
      const auto size = static_cast<size_t>(std::min(kBlockBytes, all - begin));
      file.read_at(record_.tokens_offset + begin, block.data(), size);
      const uint64_t number = begin / kBlockBytes;
      if (xxh3_64(block.data(), size) != block_hashes_[number]) {
        fault("block " + std::to_string(number) + " of /tokens (bytes " +
              std::to_string(record_.tokens_offset + begin) + " to " +
              std::to_string(record_.tokens_offset + begin + size) + ") does not match its hash");
      }
      for (size_t at = 0; at < size; at += width) {
        uint32_t token = 0;
        std::memcpy(&token, block.data() + at, width);
        if (!check_token(token, (begin + at) / width)) return;
      }
      progress_.advance(size);
    }
  }

  // Returns false where going on would only repeat the fault.
  bool check_token(uint32_t token, uint64_t position) {
    if (token >= static_cast<uint64_t>(header_.vocab_size)) {
      fault("token " + std::to_string(token) + " at position " + std::to_string(position) +
            " is not within the vocabulary of " + std::to_string(header_.vocab_size));
      return false;
    }
    text_bytes_ += static_cast<uint64_t>(tokenizer_.bytes_of(static_cast<int32_t>(token)));
    const bool ends = position + 1 == starts_[document_ + 1];
    if (ends != (token == static_cast<uint32_t>(header_.end_of_document))) {
      fault("document " + std::to_string(document_) + " ends at token " + std::to_string(starts_[document_ + 1]) +
            " by /doc_start, but the end-of-document token says otherwise at position " + std::to_string(position));
      return false;
    }
    if (ends && text_bytes_ != bytes_[++document_]) {
      fault("the text of document " + std::to_string(document_ - 1) + " has other bytes than /doc_bytes says");
      return false;
    }
    return true;
  }

  std::string path_;
  const ShardHeader& header_;
  const ShardRecord& record_;
  const Tokenizer& tokenizer_;
  Progress& progress_;
  std::vector<std::string>& faults_;
  std::vector<uint64_t> starts_;
  std::vector<uint64_t> bytes_;
  std::vector<uint64_t> block_hashes_;
  size_t document_ = 0;
  uint64_t text_bytes_ = 0;  // so far
  std::optional<uint64_t> text_bytes_of_shard_;
};

}  // namespace

VerifyResult verify_dataset(const std::string& directory, const Progress::Output& output) {
  const Dataset dataset(directory);
  const DatasetDescription& description = dataset.description();
  const std::string model = directory + "/" + kTokenizerFile;
  const Tokenizer tokenizer(dataset.tokenizer_bytes(), model);
  VerifyResult result;
  result.shards = static_cast<int64_t>(description.shards.size());
  result.tokens = description.tokens();
  result.documents = description.documents();
  if (tokenizer.vocab_size() != description.header.vocab_size ||
      tokenizer.end_of_document() != description.header.end_of_document) {
    result.faults.push_back(model + ": its vocabulary is not the one that dataset.json names" + kAdvice);
    return result;
  }
  // Files are read for their hashes, then tokens for what they say.
  uint64_t bytes = 0;
  for (const ShardRecord& record : description.shards) {
    bytes += record.bytes + static_cast<uint64_t>(record.tokens) * size_of(description.header.token_type());
  }
  Progress progress("verifying", bytes, "bytes", output);
  std::optional<uint64_t> text_bytes = 0;
  for (const ShardRecord& record : description.shards) {
    ShardCheck check(directory, description, record, tokenizer, progress, result.faults);
    try {
      check.run();
    } catch (const SystemError& refusal) {
      if (result.faults.empty()) pass_on_refusal(refusal);  // else what was found would be lost
      result.faults.push_back(std::string(refusal.what()) + "; this shard was not verified");
    } catch (const Error& error) {
      check.fault(error.what());
    }
    text_bytes = text_bytes && check.text_bytes() ? std::optional(*text_bytes + *check.text_bytes()) : std::nullopt;
  }
  if (text_bytes && *text_bytes != static_cast<uint64_t>(description.text_bytes)) {
    result.faults.push_back(directory + "/dataset.json: text_bytes " + std::to_string(description.text_bytes) +
                            ", its shards hold " + std::to_string(*text_bytes) + kAdvice);
  }
  return result;
}

}  // namespace shiftron
