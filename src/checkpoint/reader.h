// StepReader: reads any box of any tensor of a step, checking the hash of every block it touches.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
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

  // Where the first of these elements that are stored lies: reading boxes in this order reads files front to back.
  struct Place {
    int file = 0;
    uint64_t byte_offset = 0;  // of the stored box
    auto operator<=>(const Place&) const = default;
  };
  Place place(int tensor, const Box& box) const;

  // Called for every block that is read, before it is.
  using ReadVisitor = std::function<void(const ManifestFile& file, uint64_t byte_offset, uint64_t bytes)>;
  void visit_reads(ReadVisitor visit) { visit_ = std::move(visit); }

 private:
  // Those used last are kept: rows that cross boxes of several ranks read each of their blocks once.
  struct Block {
    int box = -1;
    uint64_t index = 0, used = 0;
    std::vector<std::byte> bytes{};
  };
  const std::byte* block(int box, uint64_t index);
  void load_block(const ManifestBox& box, uint64_t index, std::vector<std::byte>& bytes);
  const FileDescriptor& open(int file);
  std::string directory_;
  Manifest manifest_;
  std::map<std::string, int> by_path_;
  std::vector<std::vector<int>> boxes_;  // of each tensor
  std::map<int, FileDescriptor> files_;
  std::vector<Block> blocks_;
  size_t last_ = 0;      // block used
  uint64_t clock_ = 0;   // of uses
  ReadVisitor visit_;
};

// The bytes of a file of the manifest, after its hash was compared. Throws Error(no_checkpoint).
std::string read_manifest_file(const std::string& step_directory, const ManifestFile& file);

}  // namespace shiftron
