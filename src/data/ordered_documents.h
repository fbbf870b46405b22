// Documents that are written to shards in the order in which they come, without a copy in between.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "data/dataset.h"

namespace shiftron {

// Their tokens are read twice: once to count them, because a shard's size must be known when its file is created, and
// once to write them.
class OrderedDocuments {
 public:
  struct Document {
    int64_t tokens = 0;      // without its end token, unless has_ends()
    uint64_t first = 0;      // its place, which only the class reads
    size_t file = 0;         // likewise
    int64_t text_bytes = 0;  // likewise
  };
  // For tokens without targets: the pointer to targets is null.
  struct Piece {
    int32_t* ids;      // each in [0, vocabulary); the end token only where has_ends() says so
    int32_t* targets;  // as in TokenDocument
  };
  virtual ~OrderedDocuments() = default;
  virtual bool has_targets() const = 0;
  // Whether each document has its end token, and that token's target. Otherwise the end is added, and not counted.
  virtual bool has_ends() const { return false; }
  // The next document, of at least one token; nothing after the last. Throws Error(bad_input).
  virtual std::optional<Document> next() = 0;
  // Fills `piece` with tokens [first, first + count) of a document. Returns the bytes of their text. Documents of at
  // most the last `shard_tokens` tokens are read again, in order.
  virtual int64_t read(const Document& document, int64_t first, int64_t count, const Piece& piece) = 0;
};

// Throws Error(bad_input): --shard-tokens makes more shards than dataset.json can hold; `enough` is what to give.
[[noreturn]] void refuse_shards(int64_t shard_tokens, size_t most, const std::string& enough);

// End tokens that fill a window of packed data before a document of so many tokens, if all documents before it end at
// `position`. None if `pack` is 0.
int64_t filling(int64_t position, int64_t tokens, int64_t pack);

// Writes all documents to shards in `directory`, whole documents of up to `shard_tokens` tokens each; a longer one gets
// a shard of its own. `header.pack` > 0: windows are filled as in a build; this needs has_ends(). `progressed` gets the
// number of tokens written so far, with end tokens. Memory: 40 bytes for each document of a shard, in addition to
// ShardWriter's.
DatasetDescription write_ordered(OrderedDocuments& documents, const ShardHeader& header, int64_t shard_tokens,
                                 const std::string& directory, const std::function<void(int64_t tokens)>& progressed);

}  // namespace shiftron
