// StepReader: reads any box of any tensor of a step, checking the hash of every block it touches.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/tensor_source.h"
#include "core/file.h"

namespace shiftron {

class StepReader : public TensorSource {
 public:
  // `manifest` has been checked, tiling included.
  StepReader(std::string step_directory, Manifest manifest);

  const Manifest& manifest() const { return manifest_; }
  const std::vector<ManifestTensor>& tensors() const override { return manifest_.tensors; }
  int find(TensorGroup group, const std::string& name) const override;
  void read(int tensor, const Box& box, void* to) override;

  // A stored box that holds elements of another box; reading them in this order reads files front to back.
  struct Part {
    int file = 0;
    uint64_t byte_offset = 0;  // of the stored box
    int stored = 0;            // its index in the manifest
    auto operator<=>(const Part&) const = default;
  };
  std::vector<Part> parts_of(int tensor, const Box& box) const;  // ascending
  // Like read(), but only for those elements of `box` that the part holds.
  void read_part(const Part& part, const Box& box, void* to);

  // Where the elements of a box go: into the memory `to`, in the step's type, or piece by piece to `take`, with the
  // index in the box of the piece's first element. `take` is called before the hash of the piece's block is checked,
  // and by several threads for different blocks.
  struct Destination {
    void* to = nullptr;  // null: take
    std::function<void(int64_t first, int64_t count, const std::byte* values)> take{};
  };
  struct BlockRead {
    int stored = 0;
    uint64_t index = 0;
    int64_t first = 0;  // element of the box that the block begins with
    const Destination* destination = nullptr;
  };
  // The element of `box` with which the part begins, if the whole part is contiguous in the box: only then can it be
  // read by blocks.
  std::optional<int64_t> place_of(const Part& part, const Box& box) const;
  // Appends the blocks of a part at that place. They keep a pointer to the destination.
  void append_blocks(const Part& part, int64_t place, const Destination& destination,
                     std::vector<BlockRead>& blocks) const;
  // Reads each block straight to its destination, in order; with more threads several at a time.
  void read_blocks(const std::vector<BlockRead>& blocks, int threads);

  // Called before each block is read, by one thread at a time.
  using ReadVisitor = std::function<void(const ManifestFile& file, uint64_t byte_offset, uint64_t bytes)>;
  void visit_reads(ReadVisitor visit) { visit_ = std::move(visit); }

 private:
  // The most recently used blocks are kept, as many as rows touch that cross the boxes of several ranks, so that each
  // block is read once.
  struct Block {
    int box = -1;
    uint64_t index = 0, used = 0;
    std::vector<std::byte> bytes{};
  };
  void keep_blocks(uint64_t count);
  const std::byte* block(int box, uint64_t index);
  int64_t element_bytes(const ManifestBox& box) const;
  uint64_t bytes_of(const ManifestBox& box, uint64_t index) const;  // of a block
  void visit(const ManifestBox& box, uint64_t index) const;
  // A piece of a block, from byte `at` of the block on.
  using PieceVisitor = std::function<void(uint64_t at, uint64_t bytes, const std::byte* piece)>;
  // Reads a block and checks its hash; several threads may call it. With `take`, `to` is a buffer for one piece at a
  // time.
  void load_block(const FileDescriptor& file, const ManifestBox& box, uint64_t index, std::byte* to,
                  const PieceVisitor& take = {}) const;
  // `room`: the calling thread's buffer, for destinations that are not memory.
  void load_block(const FileDescriptor& file, const ManifestBox& box, const BlockRead& block,
                  std::vector<std::byte>& room) const;
  void read_blocks_of_file(std::span<const BlockRead> blocks, int threads);
  const FileDescriptor& open(const ManifestBox& box);
  std::string directory_;
  Manifest manifest_;
  std::map<std::string, int> by_path_;
  std::vector<std::vector<int>> boxes_;  // of each tensor
  std::map<int, FileDescriptor> files_;
  std::vector<Block> blocks_;
  size_t last_ = 0;     // index of the block used last
  uint64_t clock_ = 0;  // counts uses
  ReadVisitor visit_;
};

// The bytes of a file of the manifest, after checking its hash. Throws Error(no_checkpoint).
std::string read_manifest_file(const std::string& step_directory, const ManifestFile& file);

}  // namespace shiftron
