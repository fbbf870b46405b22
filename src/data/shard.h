// One shard of a dataset: an HDF5 file with the tokens of whole documents, their targets if the dataset has them, and
// its entry in dataset.json.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/hdf5_file.h"
#include "tokenizer/stored_tokenizer.h"

namespace shiftron {

constexpr uint64_t kBlockBytes = uint64_t{256} << 10;  // of /tokens or /targets, covered by one hash
constexpr int32_t kNotCounted = -1;                    // instead of a target: nothing is predicted there

// What every shard of a dataset has in common.
struct ShardHeader {
  int64_t vocab_size = 0;
  int32_t end_of_document = 0;
  std::string tokenizer_hash;  // empty = the tokens have no tokenizer
  std::string source;          // where the text came from
  bool has_targets = false;    // otherwise the target of a token is the next token
  int64_t pack = 0;            // L > 0: no document straddles a window of L tokens
  std::string tokenizer_file = "tokenizer.model";
  TokenizerSettings tokenizer_settings{};  // as in StoredTokenizer; none without a tokenizer

  // The lowest version of the format that can express it.
  int version() const {
    if (!is_of_first_versions(tokenizer_file, tokenizer_settings)) return 3;
    return has_targets || pack > 0 || tokenizer_hash.empty() ? 2 : 1;
  }
  // Of tokens and targets. Targets need one more value: the type's highest, which stands for kNotCounted.
  Hdf5Type token_type() const { return vocab_size + (has_targets ? 1 : 0) <= 65536 ? Hdf5Type::u16 : Hdf5Type::u32; }
};

// What a shard has for each token.
enum class ShardRow { tokens, targets };

struct ShardRecord {
  std::string file;    // name within the dataset's directory, or a path relative to it
  uint64_t bytes = 0;  // of the file
  int64_t tokens = 0;
  int64_t documents = 0;
  uint64_t tokens_offset = 0;       // of /tokens in the file
  uint64_t block_hash_offset = 0;   // of /block_hash
  std::string block_hash_xxh3_128;  // of the bytes of /block_hash; empty in older builds
  std::string xxh3_128;             // of the file
  // Of shards with targets:
  int64_t counted_targets = 0;
  uint64_t targets_offset = 0;             // of /targets in the file
  uint64_t targets_block_hash_offset = 0;  // of /targets_block_hash
  std::string targets_block_hash_xxh3_128{};
  bool operator==(const ShardRecord&) const = default;
};

// Location of a row and of the hashes of its blocks.
struct ShardRowPlace {
  const char* name;       // of the HDF5 dataset
  const char* hash_name;  // of the HDF5 dataset with its hashes
  uint64_t offset;        // bytes
  uint64_t block_hash_offset;
  const std::string& block_hash_xxh3_128;  // of the record
};
ShardRowPlace place_of(const ShardRecord& record, ShardRow row);
std::vector<ShardRow> rows_of(const ShardHeader& header);

// Calls `read`, which reads the shard at `path`, for instance while watching it.
using AroundRead = std::function<void(const std::string& path, const std::function<void()>& read)>;

// Files of a dataset: shard-00000.h5, shard-00001.h5, …
std::string shard_name(size_t number);
bool is_shard_name(const std::string& name);
// A tokenizer's hash as a file states it; "" for that of no bytes, by which other programs say that there is none.
std::string known_tokenizer_hash(const std::string& stated);
// The hash of a shard's /block_hash or /targets_block_hash in dataset.json.
std::string hash_of_hashes(const std::vector<uint64_t>& block_hashes);

// Number of blocks that `tokens` tokens fill.
int64_t block_count(int64_t tokens, Hdf5Type type);

// Makes a closed shard durable; sets its size and its hash in `record`. Throws Error(crash) if it cannot write.
void seal_shard(const std::string& path, ShardRecord& record);

// Holds one block of each row in memory, and 16 bytes a document. Throws Error(crash) if it cannot write.
class ShardWriter {
 public:
  // Creates a file of exactly so many tokens and documents.
  ShardWriter(const std::string& path, const ShardHeader& header, int64_t tokens, int64_t documents);
  ~ShardWriter();
  // One document: its tokens with the end-of-document token last, the length of its text, and, for data with targets,
  // the target of each token: kNotCounted, or a token.
  void append(const int32_t* tokens, int64_t count, int64_t text_bytes, const int32_t* targets = nullptr);
  // The same in pieces: some of the document's tokens, then its end, of which `text_bytes` are the bytes of all of it.
  void append_piece(const int32_t* tokens, int64_t count, const int32_t* targets = nullptr);
  void end_document(int64_t text_bytes);
  // Packed data: adds `count` end tokens after the last document, which belong to it. Their targets are not counted.
  void fill(int64_t count);
  // Closes the file. Its record lacks what seal_shard() adds.
  ShardRecord close();
  ShardRecord finish();  // closes and seals it

 private:
  struct Row {  // partly written
    ShardRow what;
    std::vector<char> block{};
    size_t filled = 0;    // bytes of the block
    int64_t written = 0;  // values
    std::vector<uint64_t> block_hashes{};
  };
  void add(Row& row, const int32_t* values, int64_t count);
  void write_block(Row& row);
  std::string path_;
  ShardHeader header_;
  int64_t tokens_;
  int64_t documents_;
  int64_t counted_targets_ = 0;
  int32_t last_ = 0;      // token of the current document
  int64_t appended_ = 0;  // tokens
  Hdf5File file_;
  FileDescriptor writing_;  // the same file
  std::vector<Row> rows_;
  std::vector<uint64_t> document_start_{0};
  std::vector<uint64_t> document_bytes_{0};
};

}  // namespace shiftron
