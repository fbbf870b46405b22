// A dataset: a directory with dataset.json, a tokenizer and shards, read as one long sequence of tokens and, if it
// has them, targets.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/file.h"
#include "data/shard.h"

namespace shiftron {

constexpr char kDescriptionFile[] = "dataset.json";
constexpr uint64_t kLargestDescription = uint64_t{64} << 20;  // bytes of it
constexpr size_t kMostShards = size_t{1} << 20;
constexpr char kWorkName[] = ".building";  // folder in a build's output until the build is finished

// The content of dataset.json.
struct DatasetDescription {
  ShardHeader header;  // `source`: the inputs' names
  int64_t text_bytes = 0;
  std::vector<ShardRecord> shards;

  int64_t tokens() const;
  int64_t documents() const;
  int64_t counted_targets() const;  // for data with targets; otherwise 0
  std::string to_text() const;
  // `path` is for messages. Throws Error(bad_input): bad JSON, missing keys, unsafe names, numbers out of range.
  static DatasetDescription parse(const std::string& text, const std::string& path);
};

// A shard's object in dataset.json, on one line. Parsing: errors as in DatasetDescription::parse().
std::string shard_text(const ShardRecord& shard, const ShardHeader& header);
ShardRecord parse_shard(const std::string& text, const ShardHeader& header, const std::string& path);

// Number of shards that always fits into a dataset.json: at most kMostShards.
size_t most_described_shards(const ShardHeader& header);

// Files kept open for reading, of one dataset or several; the least recently used one is closed first.
class OpenShards {
 public:
  OpenShards();  // a quarter of the files that the process may open (`ulimit -n`)
  explicit OpenShards(size_t most) : most_(most) {}
  const FileDescriptor* find(const std::string& path);  // null if it is not open
  const FileDescriptor& add(FileDescriptor file);
  void close(const std::string& path);
  size_t size() const { return files_.size(); }

 private:
  size_t most_;
  std::list<FileDescriptor> files_;  // the most recently used first
  std::unordered_map<std::string, std::list<FileDescriptor>::iterator> where_;
};

// For one thread. Opens shards when they are read, and keeps them in `open`.
class Dataset {
 public:
  // Reads only dataset.json and, if the data has one, the tokenizer. Throws Error(bad_input).
  explicit Dataset(const std::string& directory, std::shared_ptr<OpenShards> open = std::make_shared<OpenShards>());

  const std::string& directory() const { return directory_; }
  const DatasetDescription& description() const { return description_; }
  const std::string& fingerprint() const { return fingerprint_; }  // XXH3-128 of dataset.json
  const StoredTokenizer& tokenizer() const { return tokenizer_; }
  std::string tokenizer_path() const { return directory_ + "/" + description_.header.tokenizer_file; }
  int64_t tokens() const { return first_token_.back(); }
  bool has_targets() const { return description_.header.has_targets; }

  // Opens every shard, compares its size and looks for its last end token, so that missing or unreadable shards, and
  // documents whose ends training could not see, are reported before a run writes anything. Errors as in read().
  void require_shards() const;

  // Tokens [first, first + count) of all documents, each of which ends with its end token. `check_blocks`: checks the
  // hash of every block touched. Throws Error(bad_input) with shard and place: damage, a token outside the vocabulary,
  // a shard that lacks what it should hold; SystemError if the machine refuses to read it.
  void read(int64_t first, int64_t count, int32_t* tokens, bool check_blocks);
  // The targets of these tokens, for data that has them: a token or kNotCounted each. Otherwise as read().
  void read_targets(int64_t first, int64_t count, int32_t* targets, bool check_blocks);
  void read_by(AroundRead around) { around_ = std::move(around); }  // from now on

 private:
  FileDescriptor open_whole(size_t shard) const;
  const FileDescriptor& open_shard(size_t shard);
  void forget(size_t shard);
  void require_last_end(const FileDescriptor& file, size_t shard) const;
  void check_block_hashes(const FileDescriptor& file, size_t shard, ShardRow row) const;
  void check_block(const FileDescriptor& file, size_t shard, ShardRow row, int64_t block) const;
  void read_row(ShardRow row, int64_t first, int64_t count, int32_t* values, bool check_blocks);
  void read_within(size_t shard, ShardRow row, int64_t first, int64_t count, int32_t* values, bool check_blocks);
  void read_once(size_t shard, ShardRow row, int64_t first, int64_t count, int32_t* values, bool check_blocks);
  void require_vocabulary(size_t shard, ShardRow row, int64_t first, int64_t count, const int32_t* values) const;
  std::string path_of(size_t shard) const { return directory_ + "/" + description_.shards[shard].file; }

  std::string directory_;
  DatasetDescription description_;
  std::string fingerprint_;
  StoredTokenizer tokenizer_;
  std::shared_ptr<OpenShards> open_;
  std::vector<int64_t> first_token_;  // of each shard; then the total
  std::vector<bool> sampled_;         // shards whose hashes and one block were checked
  std::vector<char> raw_;
  AroundRead around_ = [](const std::string&, const std::function<void()>& read) { read(); };
};

}  // namespace shiftron
