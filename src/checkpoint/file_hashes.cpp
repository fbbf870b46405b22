// Reads a file once for all of its hashes.
#include "checkpoint/file_hashes.h"

#include <algorithm>

#include "core/check.h"
#include "core/helper_thread.h"

namespace shiftron {

FileHashes hash_file(const FileDescriptor& file, const std::vector<Segment>& segments, uint64_t block_bytes,
                     const BytesRead& progress, int threads) {
  FileHashes hashes;
  HashStream whole;
  std::vector<std::byte> buffers[2];
  for (std::vector<std::byte>& buffer : buffers) buffer.resize(std::min(block_bytes, file.size()));
  size_t next = 0;
  uint64_t at = 0;
  HelperThread helper(threads > 1);
  // The next bytes of the file, at most a block; they stay valid until the call after the next.
  const auto take = [&](uint64_t bytes) -> const std::byte* {
    std::byte* const data = buffers[next].data();
    next = 1 - next;
    file.read_at(at, data, bytes);
    helper.start([&whole, data, bytes] { whole.update(data, bytes); });
    at += bytes;
    if (progress) progress(at, file.size());
    return data;
  };
  const auto skip_to = [&](uint64_t end) {
    while (at < end) take(std::min(block_bytes, end - at));
  };
  for (const Segment& segment : segments) {
    CHECK(segment.bytes > 0 && segment.offset >= at, file.path(), ": data at byte ", segment.offset,
          " is out of order");
    skip_to(segment.offset);
    std::vector<uint64_t>& blocks = hashes.blocks.emplace_back();
    while (at < segment.offset + segment.bytes) {
      const uint64_t bytes = std::min(block_bytes, segment.offset + segment.bytes - at);
      blocks.push_back(xxh3_64(take(bytes), bytes));
    }
  }
  skip_to(file.size());
  helper.finish();
  hashes.whole = whole.digest_128();
  return hashes;
}

}  // namespace shiftron
