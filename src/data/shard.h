// One shard of a dataset: an HDF5 file with the tokens of whole documents, and its line in dataset.json.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/hdf5_file.h"

namespace shiftron {

constexpr uint64_t kBlockBytes = uint64_t{256} << 10;  // of /tokens under one hash in /block_hash

// What every shard of a dataset has in common.
struct ShardHeader {
  int64_t vocab_size = 0;
  int32_t end_of_document = 0;
  std::string tokenizer_hash;
  std::string source;  // where the text came from
  Hdf5Type token_type() const { return vocab_size <= 65536 ? Hdf5Type::u16 : Hdf5Type::u32; }
};

struct ShardRecord {
  std::string file;    // name within the dataset's directory
  uint64_t bytes = 0;  // of the file
  int64_t tokens = 0;
  int64_t documents = 0;
  uint64_t tokens_offset = 0;       // of /tokens in the file
  uint64_t block_hash_offset = 0;   // of /block_hash
  std::string block_hash_xxh3_128;  // of the bytes of /block_hash; empty: older builds say none
  std::string xxh3_128;             // of the file
  bool operator==(const ShardRecord&) const = default;
};

// Makes a read of the shard that lies at `path`, with a watch over it for instance.
using AroundRead = std::function<void(const std::string& path, const std::function<void()>& read)>;

// Files of a dataset: shard-00000.h5, shard-00001.h5, …
std::string shard_name(size_t number);
bool is_shard_name(const std::string& name);
// What dataset.json says of a shard's /block_hash.
std::string hash_of_hashes(const std::vector<uint64_t>& block_hashes);

// Blocks that `tokens` tokens fill.
int64_t block_count(int64_t tokens, Hdf5Type type);

// Holds one block in memory, and 16 bytes a document. Throws Error(crash) where it cannot write.
class ShardWriter {
 public:
  // A new file of exactly so many tokens and documents.
  ShardWriter(const std::string& path, const ShardHeader& header, int64_t tokens, int64_t documents);
  ~ShardWriter();
  // One document: its tokens with the end-of-document token last, and the length of its text.
  void append(const int32_t* tokens, int64_t count, int64_t text_bytes);
  // Closes and syncs the file.
  ShardRecord finish();

 private:
  void write_block();
  std::string path_;
  ShardHeader header_;
  int64_t tokens_;
  int64_t documents_;
  Hdf5File file_;
  std::vector<char> block_;
  int64_t written_ = 0;  // tokens
  std::vector<uint64_t> block_hashes_;
  std::vector<uint64_t> document_start_{0};
  std::vector<uint64_t> document_bytes_{0};
};

}  // namespace shiftron
