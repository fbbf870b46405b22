// Writes shards.
#include "data/shard.h"

#include <algorithm>
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

bool is_shard_name(const std::string& name) {
  return name.starts_with("shard-") && name.ends_with(".h5");
}

std::string hash_of_hashes(const std::vector<uint64_t>& block_hashes) {
  return to_hex(xxh3_128(block_hashes.data(), block_hashes.size() * sizeof block_hashes[0]));
}

int64_t block_count(int64_t tokens, Hdf5Type type) {
  const auto per_block = static_cast<int64_t>(kBlockBytes / size_of(type));
  return (tokens + per_block - 1) / per_block;
}

ShardRowPlace place_of(const ShardRecord& record, ShardRow row) {
  if (row == ShardRow::tokens) {
    return {"tokens", "block_hash", record.tokens_offset, record.block_hash_offset, record.block_hash_xxh3_128};
  }
  return {"targets", "targets_block_hash", record.targets_offset, record.targets_block_hash_offset,
          record.targets_block_hash_xxh3_128};
}

std::vector<ShardRow> rows_of(const ShardHeader& header) {
  if (header.has_targets) return {ShardRow::tokens, ShardRow::targets};
  return {ShardRow::tokens};
}

ShardWriter::ShardWriter(const std::string& path, const ShardHeader& header, int64_t tokens, int64_t documents)
    : path_(path), header_(header), tokens_(tokens), documents_(documents), file_(Hdf5File::create(path)) {
  const Hdf5Type type = header.token_type();
  file_.create_dataset("tokens", type, {tokens});
  file_.create_dataset("doc_start", Hdf5Type::u64, {documents + 1});
  file_.create_dataset("doc_bytes", Hdf5Type::u64, {documents + 1});
  file_.create_dataset("block_hash", Hdf5Type::u64, {block_count(tokens, type)});
  if (header.has_targets) {
    file_.create_dataset("targets", type, {tokens});
    file_.create_dataset("targets_block_hash", Hdf5Type::u64, {block_count(tokens, type)});
  }
  file_.set_attribute("/", "format", std::string("shiftron token shard"));
  file_.set_attribute("/", "version", int64_t{header.version()});
  file_.set_attribute("/", "dtype", to_string(type));
  file_.set_attribute("/", "vocab_size", header.vocab_size);
  file_.set_attribute("/", "eod_id", int64_t{header.end_of_document});
  if (!header.tokenizer_hash.empty()) file_.set_attribute("/", "tokenizer_hash", header.tokenizer_hash);
  if (header.version() > 2) {
    file_.set_attribute("/", "tokenizer_file", header.tokenizer_file);
    file_.set_attribute("/", "bod_id", int64_t{header.tokenizer_settings.beginning_of_document});
    file_.set_attribute("/", "special_text", int64_t{header.tokenizer_settings.special_text});
  }
  if (header.pack > 0) file_.set_attribute("/", "pack", header.pack);
  file_.set_attribute("/", "n_tokens", tokens);
  file_.set_attribute("/", "n_docs", documents);
  file_.set_attribute("/", "block_bytes", static_cast<int64_t>(kBlockBytes));
  file_.set_attribute("/", "source", header.source);
  file_.set_attribute("/", "creator", std::string("shiftron data build"));
  for (const ShardRow row : rows_of(header)) rows_.push_back({.what = row});
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::append(const int32_t* tokens, int64_t count, int64_t text_bytes, const int32_t* targets) {
  CHECK(count > 0 && tokens[count - 1] == header_.end_of_document, path_, ": a document ends with its end token");
  CHECK((targets != nullptr) == header_.has_targets, path_,
        ": targets must be given if and only if the header says so");
  for (int64_t i = 0; i < count; ++i) {
    CHECK(tokens[i] >= 0 && tokens[i] < header_.vocab_size, path_, ": token ", tokens[i]);
    if (targets == nullptr) continue;
    CHECK(targets[i] >= kNotCounted && targets[i] < header_.vocab_size, path_, ": target ", targets[i]);
    counted_targets_ += targets[i] == kNotCounted ? 0 : 1;
  }
  add(rows_[0], tokens, count);
  if (targets != nullptr) add(rows_[1], targets, count);
  document_start_.push_back(document_start_.back() + static_cast<uint64_t>(count));
  document_bytes_.push_back(document_bytes_.back() + static_cast<uint64_t>(text_bytes));
}

void ShardWriter::fill(int64_t count) {
  if (count == 0) return;
  CHECK(count > 0 && header_.has_targets && document_start_.size() > 1, path_, ": ", count, " tokens to fill");
  const auto size = static_cast<size_t>(count);
  add(rows_[0], std::vector<int32_t>(size, header_.end_of_document).data(), count);
  add(rows_[1], std::vector<int32_t>(size, kNotCounted).data(), count);
  document_start_.back() += static_cast<uint64_t>(count);
}

void ShardWriter::add(Row& row, const int32_t* values, int64_t count) {
  const size_t width = size_of(header_.token_type());
  row.block.reserve(kBlockBytes);
  for (int64_t i = 0; i < count; ++i) {
    // Little-endian: the low bytes come first. Those of kNotCounted are the type's highest value.
    const auto bytes = reinterpret_cast<const char*>(&values[i]);
    row.block.insert(row.block.end(), bytes, bytes + width);
    if (row.block.size() == kBlockBytes) write_block(row);
  }
}

void ShardWriter::write_block(Row& row) {
  const auto count = static_cast<int64_t>(row.block.size() / size_of(header_.token_type()));
  file_.write_range(place_of({}, row.what).name, row.written, count, row.block.data());
  row.block_hashes.push_back(xxh3_64(row.block.data(), row.block.size()));
  row.written += count;
  row.block.clear();
}

ShardRecord ShardWriter::finish() {
  for (Row& row : rows_) {
    if (!row.block.empty()) write_block(row);
    CHECK(row.written == tokens_, path_, ": ", row.written, " tokens of ", tokens_);
    file_.write(place_of({}, row.what).hash_name, row.block_hashes.data());
  }
  CHECK(static_cast<int64_t>(document_start_.size()) == documents_ + 1, path_, ": ", document_start_.size() - 1,
        " documents of ", documents_);
  file_.write("doc_start", document_start_.data());
  file_.write("doc_bytes", document_bytes_.data());
  ShardRecord record;
  record.file = path_.substr(path_.find_last_of('/') + 1);
  record.tokens = tokens_;
  record.documents = documents_;
  record.tokens_offset = file_.info("tokens").byte_offset;
  record.block_hash_offset = file_.info("block_hash").byte_offset;
  record.block_hash_xxh3_128 = hash_of_hashes(rows_[0].block_hashes);
  if (header_.has_targets) {
    record.counted_targets = counted_targets_;
    record.targets_offset = file_.info("targets").byte_offset;
    record.targets_block_hash_offset = file_.info("targets_block_hash").byte_offset;
    record.targets_block_hash_xxh3_128 = hash_of_hashes(rows_[1].block_hashes);
  }
  file_.close();
  FileDescriptor file = FileDescriptor::open_for_reading(path_);
  file.sync();
  record.bytes = file.size();
  record.xxh3_128 = file_hash(file, record.bytes);
  return record;
}

}  // namespace shiftron
