// Hashes of a file and of blocks of its segments, in one pass.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "core/file.h"
#include "core/hash.h"

namespace shiftron {

struct Segment {
  uint64_t offset = 0, bytes = 0;
};

struct FileHashes {
  Hash128 whole;
  std::vector<std::vector<uint64_t>> blocks;  // XXH3-64 of the blocks of each segment
};

// One pass over the file; `progress` receives its bytes. Segments are ascending, not empty, and share no bytes. With 2
// or more `threads`, a second thread computes the hash of the whole.
FileHashes hash_file(const FileDescriptor& file, const std::vector<Segment>& segments, uint64_t block_bytes,
                     const BytesRead& progress = {}, int threads = 1);

}  // namespace shiftron
