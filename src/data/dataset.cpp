// Reads tokens by offset, without the HDF5 library.
#include "data/dataset.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "core/check.h"
#include "core/hash.h"
#include "core/shell_word.h"
#include "core/system_error.h"

namespace shiftron {
namespace {

constexpr uint64_t kLargestTokenizer = uint64_t{1} << 30;
constexpr char kAdvice[] = "; restore the dataset or build it again (`shiftron data verify` lists every fault)";

// Widens raw tokens or targets; returns the largest. With `has_uncounted` the type's highest value becomes kNotCounted.
template <typename T, bool has_uncounted>
uint32_t widen(const char* raw, int64_t count, int32_t* values) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {  // without branches, so that it becomes vector instructions
    T value;
    std::memcpy(&value, raw + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    const bool is_uncounted = has_uncounted && value == std::numeric_limits<T>::max();
    largest = std::max<uint32_t>(largest, is_uncounted ? 0 : value);
    values[i] = is_uncounted ? kNotCounted : static_cast<int32_t>(value);
  }
  return largest;
}

template <typename T>
uint32_t widen(const char* raw, int64_t count, bool has_uncounted, int32_t* values) {
  return has_uncounted ? widen<T, true>(raw, count, values) : widen<T, false>(raw, count, values);
}

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// With advice that depends on what the directory holds instead.
[[noreturn]] void throw_no_dataset(const std::string& directory, const std::string& reason) {
  if (is_there(directory + "/" + kDescriptionFile)) throw_bad_input(reason);
  std::string output = directory;  // of the build that may have made it
  while (output.size() > 1 && output.ends_with('/')) output.pop_back();
  const std::string name = std::filesystem::path(output).filename();
  const std::string above = parent_directory(output);
  if ((name == "train" || name == "validation") && is_there(above + "/" + kWorkName)) output = above;
  if (is_there(output + "/" + kWorkName)) {
    throw_bad_input(directory,
                    " is not a dataset yet: its build is still running or was interrupted; if it is not running, ",
                    "repeat the same `shiftron data build --output ", shell_word(output), "`");
  }
  std::string parts;
  for (const char* part : {"/train", "/validation"}) {
    if (is_there(output + part + "/" + kDescriptionFile)) parts += (parts.empty() ? "" : " or ") + output + part;
  }
  if (!parts.empty()) throw_bad_input(directory, " is not a dataset, but contains datasets; name ", parts);
  throw_bad_input(directory, " is not a dataset (", reason, "); `shiftron data build` creates one");
}

}  // namespace

OpenShards::OpenShards() : most_(64) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) most_ = std::clamp<rlim_t>(limit.rlim_cur / 4, 1, kMostShards);
}

const FileDescriptor* OpenShards::find(const std::string& path) {
  const auto found = where_.find(path);
  if (found == where_.end()) return nullptr;
  files_.splice(files_.begin(), files_, found->second);
  return &files_.front();
}

const FileDescriptor& OpenShards::add(FileDescriptor file) {
  while (!files_.empty() && files_.size() >= most_) {
    where_.erase(files_.back().path());
    files_.pop_back();
  }
  files_.push_front(std::move(file));
  where_[files_.front().path()] = files_.begin();
  return files_.front();
}

void OpenShards::close(const std::string& path) {
  const auto found = where_.find(path);
  if (found == where_.end()) return;
  files_.erase(found->second);
  where_.erase(found);
}

Dataset::Dataset(const std::string& directory, std::shared_ptr<OpenShards> open)
    : directory_(directory), open_(std::move(open)) {
  const std::string path = directory + "/" + kDescriptionFile;
  std::string text;
  try {
    text = read_file(path, kLargestDescription);
  } catch (const Error& error) {
    rethrow_system_error(error);
    if (error.code() != ExitCode::bad_input) throw;  // the machine's fault
    throw_no_dataset(directory, error.what());
  }
  fingerprint_ = to_hex(xxh3_128(text));
  description_ = DatasetDescription::parse(text, path);
  if (const std::string& stated = description_.header.tokenizer_hash; !stated.empty()) {
    const ShardHeader& header = description_.header;
    tokenizer_ = {{header.tokenizer_file, read_file(tokenizer_path(), kLargestTokenizer)}, header.tokenizer_settings};
    const std::string hash = to_hex(xxh3_128(tokenizer_.file.bytes));
    if (hash != stated) {
      throw_bad_input(tokenizer_path(), " has hash ", hash, ", but dataset.json names ", stated, kAdvice);
    }
  }
  first_token_.push_back(0);
  for (const ShardRecord& shard : description_.shards) first_token_.push_back(first_token_.back() + shard.tokens);
  sampled_.resize(description_.shards.size());
}

void Dataset::read(int64_t first, int64_t count, int32_t* tokens, bool check_blocks) {
  read_row(ShardRow::tokens, first, count, tokens, check_blocks);
}

void Dataset::read_targets(int64_t first, int64_t count, int32_t* targets, bool check_blocks) {
  CHECK(has_targets(), directory_, " has no targets");
  read_row(ShardRow::targets, first, count, targets, check_blocks);
}

void Dataset::read_row(ShardRow row, int64_t first, int64_t count, int32_t* values, bool check_blocks) {
  CHECK(first >= 0 && count >= 0 && count <= this->tokens() && first <= this->tokens() - count, directory_, ": tokens ",
        first, " to ", first + count, " of ", this->tokens());
  auto shard =
      static_cast<size_t>(std::upper_bound(first_token_.begin(), first_token_.end(), first) - first_token_.begin() - 1);
  for (; count > 0; ++shard) {
    const int64_t within = first - first_token_[shard];
    const int64_t piece = std::min(count, first_token_[shard + 1] - first);
    try {
      read_within(shard, row, within, piece, values, check_blocks);
    } catch (const Error& error) {
      if (error.code() == ExitCode::bad_input) throw;
      forget(shard);  // a stale handle of a network file system: once more from the start
      try {
        read_within(shard, row, within, piece, values, check_blocks);
      } catch (const Error& again) {
        if (again.code() == ExitCode::bad_input) throw;
        const std::string what = detail::concatenate(path_of(shard), ": ", place_of({}, row).name, " ", within, " to ",
                                                     within + piece, " cannot be read: ", again.what());
        if (dynamic_cast<const SystemError*>(&again) != nullptr) throw SystemError(what);
        throw_bad_input(what, kAdvice);
      }
    }
    first += piece;
    values += piece;
    count -= piece;
  }
}

void Dataset::read_within(size_t shard, ShardRow row, int64_t first, int64_t count, int32_t* values,
                          bool check_blocks) {
  around_(path_of(shard), [&] { read_once(shard, row, first, count, values, check_blocks); });
}

void Dataset::read_once(size_t shard, ShardRow row, int64_t first, int64_t count, int32_t* values, bool check_blocks) {
  const FileDescriptor& file = open_shard(shard);
  const Hdf5Type type = description_.header.token_type();
  const auto width = static_cast<int64_t>(size_of(type));
  if (check_blocks) {
    const int64_t per_block = static_cast<int64_t>(kBlockBytes) / width;
    for (int64_t block = first / per_block; block <= (first + count - 1) / per_block; ++block)
      check_block(file, shard, row, block);
  }
  raw_.resize(static_cast<size_t>(count * width));
  file.read_at(place_of(description_.shards[shard], row).offset + static_cast<uint64_t>(first * width), raw_.data(),
               raw_.size());
  const bool targets = row == ShardRow::targets;
  const uint32_t largest = type == Hdf5Type::u16 ? widen<uint16_t>(raw_.data(), count, targets, values)
                                                 : widen<uint32_t>(raw_.data(), count, targets, values);
  if (largest >= static_cast<uint64_t>(description_.header.vocab_size)) {
    require_vocabulary(shard, row, first, count, values);
  }
}

void Dataset::require_vocabulary(size_t shard, ShardRow row, int64_t first, int64_t count,
                                 const int32_t* values) const {
  const auto is_foreign = [&](int32_t value) {
    const bool uncounted = row == ShardRow::targets && value == kNotCounted;
    return !uncounted && static_cast<uint32_t>(value) >= static_cast<uint64_t>(description_.header.vocab_size);
  };
  const int32_t* const at = std::find_if(values, values + count, is_foreign);
  if (at == values + count) return;
  throw_bad_input(path_of(shard), row == ShardRow::targets ? ": target " : ": token ", static_cast<uint32_t>(*at),
                  " at position ", first + (at - values), " is not within the vocabulary of ",
                  description_.header.vocab_size, kAdvice);
}

void Dataset::require_shards() const {
  for (size_t shard = 0; shard < description_.shards.size(); ++shard) require_last_end(open_whole(shard), shard);
}

// Programs may write documents without end tokens, with borders only in /doc_start, which training does not read.
void Dataset::require_last_end(const FileDescriptor& file, size_t shard) const {
  const ShardRecord& record = description_.shards[shard];
  const Hdf5Type type = description_.header.token_type();
  uint32_t last = 0;  // little-endian
  file.read_at(record.tokens_offset + static_cast<uint64_t>(record.tokens - 1) * size_of(type), &last, size_of(type));
  const int32_t end = description_.header.end_of_document;
  if (last == static_cast<uint32_t>(end)) return;
  throw_bad_input(path_of(shard), ": its last document ends with token ", last, ", not with the end_of_document ", end,
                  " of dataset.json, by which alone training sees where documents end; write that token after each "
                  "document (docs/dataset-format.md), or import the tokens with `shiftron data import`, which adds it; "
                  "`shiftron data verify` lists every fault");
}

FileDescriptor Dataset::open_whole(size_t shard) const {
  const std::string path = path_of(shard);
  try {
    FileDescriptor file = FileDescriptor::open_for_reading(path);
    const uint64_t bytes = file.size(), stated = description_.shards[shard].bytes;
    if (bytes != stated) throw_bad_input(path, ": ", bytes, " bytes, but dataset.json says ", stated, kAdvice);
    return file;
  } catch (const Error& error) {
    rethrow_system_error(error);
    const bool is_elsewhere = description_.shards[shard].file.find('/') != std::string::npos;
    if (!is_elsewhere || name_exists(path)) throw;
    throw_bad_input(path, " is missing: ", directory_,
                    " was merged from datasets that must stay where they are; move them back, or merge them again");
  }
}

const FileDescriptor& Dataset::open_shard(size_t shard) {
  const std::string path = path_of(shard);
  if (const FileDescriptor* open = open_->find(path)) return *open;
  FileDescriptor file = open_whole(shard);
  // The hashes detect another build's file, one block a damaged file. The block depends only on the file, so that
  // failures are reproducible. Checked once per shard: if shards are often reopened, a block each time would be most of
  // what is read.
  const ShardRecord& record = description_.shards[shard];
  if (!sampled_[shard]) {
    const auto blocks = static_cast<uint64_t>(block_count(record.tokens, description_.header.token_type()));
    for (const ShardRow row : rows_of(description_.header)) {
      check_block_hashes(file, shard, row);
      check_block(file, shard, row, static_cast<int64_t>(xxh3_64(record.file) % blocks));
    }
    require_last_end(file, shard);
    sampled_[shard] = true;
  }
  return open_->add(std::move(file));
}

void Dataset::forget(size_t shard) {
  open_->close(path_of(shard));
  sampled_[shard] = false;
}

void Dataset::check_block_hashes(const FileDescriptor& file, size_t shard, ShardRow row) const {
  const ShardRecord& record = description_.shards[shard];
  const ShardRowPlace place = place_of(record, row);
  if (place.block_hash_xxh3_128.empty()) return;
  std::vector<uint64_t> hashes(static_cast<size_t>(block_count(record.tokens, description_.header.token_type())));
  file.read_at(place.block_hash_offset, hashes.data(), hashes.size() * sizeof hashes[0]);
  if (hash_of_hashes(hashes) != place.block_hash_xxh3_128) {
    throw_bad_input(path_of(shard), ": its /", place.hash_name,
                    " does not match dataset.json: it is damaged or belongs to another build", kAdvice);
  }
}

void Dataset::check_block(const FileDescriptor& file, size_t shard, ShardRow row, int64_t block) const {
  const ShardRecord& record = description_.shards[shard];
  const ShardRowPlace place = place_of(record, row);
  const uint64_t bytes = static_cast<uint64_t>(record.tokens) * size_of(description_.header.token_type());
  const uint64_t begin = static_cast<uint64_t>(block) * kBlockBytes;
  uint64_t hash = 0;
  file.read_at(place.block_hash_offset + static_cast<uint64_t>(block) * sizeof hash, &hash, sizeof hash);
  std::vector<char> content(static_cast<size_t>(std::min(kBlockBytes, bytes - begin)));
  file.read_at(place.offset + begin, content.data(), content.size());
  if (xxh3_64(content.data(), content.size()) != hash) {
    throw_bad_input(path_of(shard), ": block ", block, " of /", place.name, " (bytes ", place.offset + begin, " to ",
                    place.offset + begin + content.size(), ") does not match its hash", kAdvice);
  }
}

}  // namespace shiftron
