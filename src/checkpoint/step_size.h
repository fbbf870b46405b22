// Upper bounds of what the files of a step take on a disk, before they are written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shiftron {

struct DatasetSize {
  std::string path;  // inside its file
  uint64_t bytes = 0;
};

// An HDF5 file that Hdf5File makes of these datasets; 0 for none.
uint64_t most_file_bytes(const std::vector<DatasetSize>& datasets);
// What these datasets add to the manifest, in blocks of `block_bytes`.
uint64_t most_manifest_bytes(const std::vector<DatasetSize>& datasets, uint64_t block_bytes);

}  // namespace shiftron
