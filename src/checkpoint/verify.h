// Full check of a step: every byte of every file against the manifest, and HDF5's view of it.
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

// One pass over the file; `progress` is told of its bytes. Segments are ascending, not empty, and share no bytes.
// From 2 `threads` on, a second one makes the hash of the whole.
FileHashes hash_file(const FileDescriptor& file, const std::vector<Segment>& segments, uint64_t block_bytes,
                     const BytesRead& progress = {}, int threads = 1);

// For commands that take a step: throws Error(bad_input) where `directory` is none but a run or its folder of
// checkpoints, and names its newest step, or where it is no directory.
void refuse_other_than_a_step(const std::string& directory);

// Everything wrong with a step directory, one line each, naming file and tensor; empty = valid.
std::vector<std::string> verify_step(const std::string& step_directory, const BytesRead& progress = {});

}  // namespace shiftron
