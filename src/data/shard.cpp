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

// Whether all values are in [low, high).
bool are_within(const int32_t* values, int64_t count, int32_t low, int64_t high) {
  const auto last = static_cast<int32_t>(high - 1);
  int32_t outside = 0;  // all bits are set by a value that is; compilers vectorise this, but no early return
  for (int64_t i = 0; i < count; ++i) outside |= -static_cast<int32_t>(values[i] < low || values[i] > last);
  return outside == 0;
}

// Little-endian: the low bytes come first. Those of kNotCounted are the type's highest value.
void narrow(const int32_t* values, int64_t count, char* to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<uint16_t>(values[i]);
    std::memcpy(to + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
  }
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

std::string known_tokenizer_hash(const std::string& stated) {
  return stated == to_hex(xxh3_128("")) ? "" : stated;
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
    : path_(path),
      header_(header),
      tokens_(tokens),
      documents_(documents),
      file_(Hdf5File::create(path)),
      writing_(FileDescriptor::open_for_reading(path)) {
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
  append_piece(tokens, count, targets);
  end_document(text_bytes);
}

void ShardWriter::append_piece(const int32_t* tokens, int64_t count, const int32_t* targets) {
  if (count == 0) return;
  CHECK((targets != nullptr) == header_.has_targets, path_,
        ": targets must be given if and only if the header says so");
  CHECK(are_within(tokens, count, 0, header_.vocab_size), path_, ": a token is not within the vocabulary");
  add(rows_[0], tokens, count);
  if (targets != nullptr) {
    static_assert(kNotCounted == -1);
    CHECK(are_within(targets, count, kNotCounted, header_.vocab_size), path_, ": a target is no token");
    counted_targets_ += count - std::count(targets, targets + count, kNotCounted);
    add(rows_[1], targets, count);
  }
  last_ = tokens[count - 1];
  appended_ += count;
}

void ShardWriter::end_document(int64_t text_bytes) {
  CHECK(appended_ > static_cast<int64_t>(document_start_.back()) && last_ == header_.end_of_document, path_,
        ": a document ends with its end token");
  document_start_.push_back(static_cast<uint64_t>(appended_));
  document_bytes_.push_back(document_bytes_.back() + static_cast<uint64_t>(text_bytes));
}

void ShardWriter::fill(int64_t count) {
  if (count == 0) return;
  CHECK(count > 0 && header_.has_targets && document_start_.size() > 1, path_, ": ", count, " tokens to fill");
  const auto size = static_cast<size_t>(count);
  add(rows_[0], std::vector<int32_t>(size, header_.end_of_document).data(), count);
  add(rows_[1], std::vector<int32_t>(size, kNotCounted).data(), count);
  document_start_.back() += static_cast<uint64_t>(count);
  appended_ += count;
}

void ShardWriter::add(Row& row, const int32_t* values, int64_t count) {
  const size_t width = size_of(header_.token_type());
  row.block.resize(kBlockBytes);
  while (count > 0) {
    const int64_t piece = std::min(count, static_cast<int64_t>((kBlockBytes - row.filled) / width));
    char* const to = row.block.data() + row.filled;
    if (width == sizeof(uint16_t)) {
      narrow(values, piece, to);
    } else {
      std::memcpy(to, values, static_cast<size_t>(piece) * width);
    }
    row.filled += static_cast<size_t>(piece) * width;
    values += piece;
    count -= piece;
    if (row.filled == kBlockBytes) write_block(row);
  }
}

void ShardWriter::write_block(Row& row) {
  const auto count = static_cast<int64_t>(row.filled / size_of(header_.token_type()));
  file_.write_range(place_of({}, row.what).name, row.written, count, row.block.data());
  row.block_hashes.push_back(xxh3_64(row.block.data(), row.filled));
  row.written += count;
  row.filled = 0;
  // Otherwise the disk would idle until the system has too many unwritten pages, or until the shard is sealed.
  constexpr size_t kBlocks = 128;
  if (row.block_hashes.size() % kBlocks == 0) writing_.start_writing();
}

ShardRecord ShardWriter::close() {
  for (Row& row : rows_) {
    if (row.filled > 0) write_block(row);
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
  return record;
}

ShardRecord ShardWriter::finish() {
  ShardRecord record = close();
  seal_shard(path_, record);
  return record;
}

void seal_shard(const std::string& path, ShardRecord& record) {
  FileDescriptor file = FileDescriptor::open_for_reading(path);
  file.start_writing();  // meanwhile the bytes are hashed
  record.bytes = file.size();
  record.xxh3_128 = file_hash(file, record.bytes);
  file.sync();
}

}  // namespace shiftron
