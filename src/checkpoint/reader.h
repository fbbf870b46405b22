// StepReader: reads any box of any tensor of a step, checking the hash of every block it touches.
#pragma once

#include <cstddef>
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

 private:
  const std::byte* block(int box, uint64_t index);
  void load_block(const ManifestBox& box, uint64_t index);
  const FileDescriptor& open(int file);
  std::string directory_;
  Manifest manifest_;
  std::map<std::string, int> by_path_;
  std::vector<std::vector<int>> boxes_;  // of each tensor
  std::map<int, FileDescriptor> files_;
  std::vector<std::byte> block_;  // of block_box_, block_index_
  int block_box_ = -1;
  uint64_t block_index_ = 0;
};

// The bytes of a file of the manifest, after its hash was compared. Throws Error(no_checkpoint).
std::string read_manifest_file(const std::string& step_directory, const ManifestFile& file);

}  // namespace shiftron
