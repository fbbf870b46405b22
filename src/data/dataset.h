// A dataset: a directory with dataset.json, tokenizer.model and shards, read as one long row of tokens.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/file.h"
#include "data/shard.h"

namespace shiftron {

constexpr char kWorkName[] = ".building";  // of the folder in a build's output while it is not finished

// The content of dataset.json.
struct DatasetDescription {
  ShardHeader header;  // `source`: the inputs' names
  int64_t text_bytes = 0;
  std::vector<ShardRecord> shards;

  int64_t tokens() const;
  int64_t documents() const;
  std::string to_text() const;
  // `path` stands in messages. Throws Error(bad_input): bad JSON, missing keys, unsafe names, numbers out of range.
  static DatasetDescription parse(const std::string& text, const std::string& path);
};

// For one thread. Opens shards when they are first read and keeps at most `open_limit` of them open.
class Dataset {
 public:
  // Reads dataset.json and tokenizer.model only. Throws Error(bad_input).
  explicit Dataset(const std::string& directory, size_t open_limit = 256);

  const std::string& directory() const { return directory_; }
  const DatasetDescription& description() const { return description_; }
  const std::string& fingerprint() const { return fingerprint_; }  // XXH3-128 of dataset.json
  const std::string& tokenizer_bytes() const { return tokenizer_bytes_; }
  int64_t tokens() const { return first_token_.back(); }

  // Tokens [first, first + count) of all documents, each document closed by its end token. With `check_blocks` the
  // hash of every block touched is checked. Throws Error(bad_input) with shard and place: damage, a token outside the
  // vocabulary, a shard that lacks what it should hold; SystemError where the machine refuses to read it.
  void read(int64_t first, int64_t count, int32_t* tokens, bool check_blocks);
  // Shards open now.
  size_t open_shards() const { return open_.size(); }

 private:
  struct OpenShard {
    size_t shard;
    FileDescriptor file;
    std::vector<uint64_t> block_hashes;
  };
  OpenShard& open_shard(size_t shard);
  void forget(size_t shard);
  void check_block(const OpenShard& open, int64_t block) const;
  void read_within(size_t shard, int64_t first, int64_t count, int32_t* tokens, bool check_blocks);
  std::string path_of(size_t shard) const { return directory_ + "/" + description_.shards[shard].file; }

  std::string directory_;
  DatasetDescription description_;
  std::string fingerprint_;
  std::string tokenizer_bytes_;
  size_t open_limit_;
  std::vector<int64_t> first_token_;  // of each shard, and the total
  std::list<OpenShard> open_;         // the latest used first
  std::unordered_map<size_t, std::list<OpenShard>::iterator> where_;
  std::vector<char> raw_;
};

}  // namespace shiftron
