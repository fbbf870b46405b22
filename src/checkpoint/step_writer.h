// Writing a whole step by one process, from logical tensors anywhere: converted, consolidated, imported.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/content.h"
#include "checkpoint/step_files.h"
#include "checkpoint/tensor_source.h"

namespace shiftron {

// What is written. Tensors are found in the source by group and name, and must have the same shape there. Where the
// types differ (float64, float32, bfloat16), elements are rounded to the nearest, ties to even; widening loses nothing,
// and what would be infinite is refused.
struct StepToWrite {
  CheckpointContent content;    // state_json: an object with at least the objects "configuration" and "trainer"
  ParallelLayout writer{};      // for people; nothing depends on it
  std::vector<StepFile> files;  // their boxes hold every element of every tensor once
};

// One file, rank-00000.h5, that holds `tensors` whole, in their order.
std::vector<StepFile> one_file(const std::vector<ManifestTensor>& tensors);

struct StepWriteOptions {
  uint64_t block_bytes = uint64_t{4} << 20;  // hashed together
  int threads = 1;                           // as WriteOptions::threads
  bool only_finite = false;                  // a value that is not is refused, by its tensor's name (bad_input)
  // Called with rows along dim 0 that are written, each once.
  std::function<void(const ManifestTensor& tensor, const void* values, int64_t rows)> each_rows{};
  // Bytes of tensors written so far, of how many; each is read back behind that.
  std::function<void(uint64_t done, uint64_t total)> progress{};
  // Called directly before the step gets its name; what it throws fails the write.
  std::function<void()> before_commit{};
  // Called with the name of every point of the protocol, in order; what it throws fails the write.
  std::function<void(const std::string& point)> at_point{};
};

struct WrittenStep {
  std::string directory;  // of the step
  uint64_t bytes = 0;     // of all its files and the manifest
};

// Writes DIRECTORY/step-S, S = content.step; makes `directory` where it is missing. Tensors travel by rows that
// together hold about a block: memory does not depend on their sizes. The step is there whole or not at all: files go
// to step-S.tmp, each is synced and read back, the manifest comes last, then a rename. An exception removes step-S.tmp;
// what a killed process left of it goes at the next attempt. Not for two processes at once (core/directory_lock.h).
// Errors: step-S is there, a tensor is not in the source or has another shape there or a value too large for its type
// here (bad_input); no room, a failing
// disk (crash); what the source throws.
WrittenStep write_step(TensorSource& source, const StepToWrite& step, const std::string& directory,
                       const StepWriteOptions& options = {});

}  // namespace shiftron
