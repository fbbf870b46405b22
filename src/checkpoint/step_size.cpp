// Sizes from the layout of HDF5 files and the form of the manifest.
#include "checkpoint/step_size.h"

namespace shiftron {
namespace {

constexpr uint64_t kPage = 4096;             // of the disk, and of the alignment in Hdf5File::create()
constexpr uint64_t kAlignedFrom = 512;       // smaller data are packed
constexpr uint64_t kPerFile = 24 << 10;      // superblock, three groups, and unfilled aligned blocks of records
constexpr uint64_t kPerDataset = 1024;       // object header, its share of the group's tree, and what alignment wastes
constexpr uint64_t kPerManifestEntry = 360;  // a tensor's line and a box's line without names and hashes
constexpr uint64_t kPerHash = 19;            // "0123456789abcdef",

uint64_t round_up(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

uint64_t most_file_bytes(const std::vector<DatasetSize>& datasets) {
  if (datasets.empty()) return 0;
  uint64_t bytes = kPerFile;
  for (const DatasetSize& dataset : datasets) {
    bytes += kPerDataset + 2 * dataset.path.size();  // a heap of names may be moved as it grows
    bytes += dataset.bytes < kAlignedFrom ? dataset.bytes : round_up(dataset.bytes);
  }
  return round_up(bytes);
}

uint64_t most_manifest_bytes(const std::vector<DatasetSize>& datasets, uint64_t block_bytes) {
  uint64_t bytes = 0;
  for (const DatasetSize& dataset : datasets) {
    bytes += kPerManifestEntry + 2 * dataset.path.size() + kPerHash * (dataset.bytes / block_bytes + 1);
  }
  return bytes;
}

}  // namespace shiftron
