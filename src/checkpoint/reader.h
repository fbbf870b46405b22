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
  // Those elements of `box` alone that the part holds, each to its place in `to`, as read().
  void read_part(const Part& part, const Box& box, void* to);

  // Where the elements of a box go: to memory that holds them as the step does, or piece by piece to `take`, with the
  // index in the box of a piece's first element, before the hash of its block is known; by several threads, of
  // different blocks.
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
  // Which element of `box` the part begins with, if it lies there whole and in one piece: it can come by blocks then.
  std::optional<int64_t> place_of(const Part& part, const Box& box) const;
  // Appends the blocks of a part with that place. The destination is referred to.
  void append_blocks(const Part& part, int64_t place, const Destination& destination,
                     std::vector<BlockRead>& blocks) const;
  // Reads each straight to its destination, in their order, the next ones by further threads meanwhile.
  void read_blocks(const std::vector<BlockRead>& blocks, int threads);

  // Called for every block that is read, before it is; by one thread at a time.
  using ReadVisitor = std::function<void(const ManifestFile& file, uint64_t byte_offset, uint64_t bytes)>;
  void visit_reads(ReadVisitor visit) { visit_ = std::move(visit); }

 private:
  // Those used last are kept, as many as rows touch that cross boxes of several ranks: each block is read once.
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
  // Of a block, from its byte `at` on.
  using PieceVisitor = std::function<void(uint64_t at, uint64_t bytes, const std::byte* piece)>;
  // Reads a block and compares its hash; several threads may. With `take`, `to` holds one piece after the other.
  void load_block(const FileDescriptor& file, const ManifestBox& box, uint64_t index, std::byte* to,
                  const PieceVisitor& take = {}) const;
  // `room`: of the calling thread, for what has no place in memory.
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
  size_t last_ = 0;     // block used
  uint64_t clock_ = 0;  // of uses
  ReadVisitor visit_;
};

// The bytes of a file of the manifest, after its hash was compared. Throws Error(no_checkpoint).
std::string read_manifest_file(const std::string& step_directory, const ManifestFile& file);

}  // namespace shiftron
