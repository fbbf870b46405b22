// Full check of a step: every byte of every file against the manifest, and how HDF5 reads it.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/tensor_source.h"
#include "core/file.h"

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

// For commands that take a step: throws Error(bad_input) if `directory` is no directory, or if it is not a step but a
// run or its folder of checkpoints (the message names its newest step) or a model of another program.
void require_step_directory(const std::string& directory);

// Everything wrong with a step directory, one line each, naming file and tensor; empty = valid.
std::vector<std::string> verify_step(const std::string& step_directory, const BytesRead& progress = {});

}  // namespace shiftron
