// Writes shards.
#include "data/shard.h"

#include <cstring>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"

namespace shiftron {
namespace {

std::string file_hash(const FileDescriptor& file, uint64_t bytes) {
  std::vector<char> buffer(size_t{1} << 22);
  HashStream hash;
  for (uint64_t at = 0; at < bytes;) {
    const size_t piece = static_cast<size_t>(std::min<uint64_t>(buffer.size(), bytes - at));
    file.read_at(at, buffer.data(), piece);
    hash.update(buffer.data(), piece);
    at += piece;
  }
  return to_hex(hash.digest_128());
}

}  // namespace

std::string shard_name(size_t number) {
  std::string digits = std::to_string(number);
  digits.insert(0, digits.size() < 5 ? 5 - digits.size() : 0, '0');
  return "shard-" + digits + ".h5";
}

bool is_shard_name(const std::string& name) { return name.starts_with("shard-") && name.ends_with(".h5"); }

std::string hash_of_hashes(const std::vector<uint64_t>& block_hashes) {
  return to_hex(xxh3_128(block_hashes.data(), block_hashes.size() * sizeof block_hashes[0]));
}

int64_t block_count(int64_t tokens, Hdf5Type type) {
  const auto per_block = static_cast<int64_t>(kBlockBytes / size_of(type));
  return (tokens + per_block - 1) / per_block;
}

ShardWriter::ShardWriter(const std::string& path, const ShardHeader& header, int64_t tokens, int64_t documents)
    : path_(path), header_(header), tokens_(tokens), documents_(documents), file_(Hdf5File::create(path)) {
  const Hdf5Type type = header.token_type();
  file_.create_dataset("tokens", type, {tokens});
  file_.create_dataset("doc_start", Hdf5Type::u64, {documents + 1});
  file_.create_dataset("doc_bytes", Hdf5Type::u64, {documents + 1});
  file_.create_dataset("block_hash", Hdf5Type::u64, {block_count(tokens, type)});
  file_.set_attribute("/", "format", std::string("shiftron token shard"));
  file_.set_attribute("/", "version", int64_t{1});
  file_.set_attribute("/", "dtype", to_string(type));
  file_.set_attribute("/", "vocab_size", header.vocab_size);
  file_.set_attribute("/", "eod_id", int64_t{header.end_of_document});
  file_.set_attribute("/", "tokenizer_hash", header.tokenizer_hash);
  file_.set_attribute("/", "n_tokens", tokens);
  file_.set_attribute("/", "n_docs", documents);
  file_.set_attribute("/", "block_bytes", static_cast<int64_t>(kBlockBytes));
  file_.set_attribute("/", "source", header.source);
  file_.set_attribute("/", "creator", std::string("shiftron data build"));
  block_.reserve(kBlockBytes);
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::append(const int32_t* tokens, int64_t count, int64_t text_bytes) {
  CHECK(count > 0 && tokens[count - 1] == header_.end_of_document, path_, ": a document ends with its end token");
  const size_t width = size_of(header_.token_type());
  for (int64_t i = 0; i < count; ++i) {
    CHECK(tokens[i] >= 0 && tokens[i] < header_.vocab_size, path_, ": token ", tokens[i]);
    const auto bytes = reinterpret_cast<const char*>(&tokens[i]);  // little-endian: the low bytes come first
    block_.insert(block_.end(), bytes, bytes + width);
    if (block_.size() == kBlockBytes) write_block();
  }
  document_start_.push_back(document_start_.back() + static_cast<uint64_t>(count));
  document_bytes_.push_back(document_bytes_.back() + static_cast<uint64_t>(text_bytes));
}

void ShardWriter::write_block() {
  const auto count = static_cast<int64_t>(block_.size() / size_of(header_.token_type()));
  file_.write_range("tokens", written_, count, block_.data());
  block_hashes_.push_back(xxh3_64(block_.data(), block_.size()));
  written_ += count;
  block_.clear();
}

ShardRecord ShardWriter::finish() {
  if (!block_.empty()) write_block();
  CHECK(written_ == tokens_ && static_cast<int64_t>(document_start_.size()) == documents_ + 1, path_, ": ", written_,
        " tokens of ", tokens_, ", ", document_start_.size() - 1, " documents of ", documents_);
  file_.write("doc_start", document_start_.data());
  file_.write("doc_bytes", document_bytes_.data());
  file_.write("block_hash", block_hashes_.data());
  ShardRecord record;
  record.file = path_.substr(path_.find_last_of('/') + 1);
  record.tokens = tokens_;
  record.documents = documents_;
  record.tokens_offset = file_.info("tokens").byte_offset;
  record.block_hash_offset = file_.info("block_hash").byte_offset;
  record.block_hash_xxh3_128 = hash_of_hashes(block_hashes_);
  file_.close();
  FileDescriptor file = FileDescriptor::open_for_reading(path_);
  file.sync();
  record.bytes = file.size();
  record.xxh3_128 = file_hash(file, record.bytes);
  return record;
}

}  // namespace shiftron
