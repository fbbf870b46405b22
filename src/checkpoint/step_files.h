// What saving and converting share: a file of boxes written, synced and read back, and the commit of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/content.h"
#include "checkpoint/manifest.h"
#include "core/hdf5_file.h"

namespace shiftron {

// How HDF5 sees elements: bfloat16 as u16, with the attribute kTypeAttribute = "bfloat16" on the dataset.
Hdf5Type stored_type(DType dtype);
inline const char* const kTypeAttribute = "dtype";

// A box of a tensor that is to be written.
struct BoxOfTensor {
  ManifestTensor tensor;
  Box box;
  uint64_t bytes() const { return static_cast<uint64_t>(box.extent.count() * size_of(tensor.dtype)); }
};

struct StepFile {
  std::string name;                // "rank-00003.h5"
  std::vector<BoxOfTensor> boxes;  // in the order of the file
};

std::string rank_file_name(int rank);  // "rank-00003.h5"

using PassedPoint = std::function<void(const char* point)>;

// Rows [first, first + count) of dim 0 of box `index` of a file, row-major: in place, or copied to `room`.
using RowsOfBox = std::function<const void*(size_t index, int64_t first, int64_t count, std::vector<std::byte>& room)>;

// Upper bound of what the file and its lines in the manifest take on a disk.
uint64_t most_bytes(const StepFile& file, uint64_t block_bytes);
// The same for the manifest's own fields and the files without tensors.
uint64_t most_bytes(const CheckpointContent& content);
// Throws Error(crash) if the disk of `directory` has less than `bytes` free; `advice` says what helps then.
void require_space(const std::string& directory, uint64_t bytes, const std::string& advice);

struct WriteOptions {
  uint64_t block_bytes = 0;  // bytes that are hashed together
  int threads = 1;           // with 2 or more, a second thread writes while the first makes and hashes rows
};

// Writes DIRECTORY/`file.name` in groups of rows that together hold about a block, syncs it, reads it back and compares
// it with the hashes of what was written; the bytes do not depend on the threads. `rows` and `at` are called by the
// caller's thread; what `rows` returns must stay unchanged during its next call. Returns a manifest of the file, its
// boxes and their tensors. Errors: those of the disk, or other content was read back (crash).
Manifest write_file(const std::string& directory, const StepFile& file, const WriteOptions& options,
                    const RowsOfBox& rows, const PassedPoint& at);

// Takes the files of `manifest` in `temporary`: adds the tokenizer, checks that every tensor is covered once, writes
// the manifest, and renames `temporary` to `final_directory`; a directory of that name is set aside as broken-…. The
// step exists only after that rename. `content` goes into the manifest. Returns the bytes of all files.
uint64_t commit_step(const std::string& temporary, const std::string& final_directory, Manifest manifest,
                     const CheckpointContent& content, const std::function<void()>& before_commit,
                     const PassedPoint& at);

}  // namespace shiftron
