// Writes a whole step in one process, from logical tensors of any source: to convert, consolidate or import.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/content.h"
#include "checkpoint/step_files.h"
#include "checkpoint/tensor_source.h"

namespace shiftron {

// What is written. Tensors are found in the source by group and name, and must have the same shape there. If the types
// differ (float64, float32, bfloat16), elements are rounded to the nearest, ties to even; widening is exact, and a
// value that would become infinite is refused.
struct StepToWrite {
  CheckpointContent content;    // state_json: an object with at least the objects "configuration" and "trainer"
  ParallelLayout writer{};      // for people; nothing depends on it
  std::vector<StepFile> files;  // their boxes hold every element of every tensor once
};

// One file, rank-00000.h5, that holds `tensors` whole, in their order.
std::vector<StepFile> one_file(const std::vector<ManifestTensor>& tensors);

struct StepWriteOptions {
  uint64_t block_bytes = uint64_t{4} << 20;  // bytes that are hashed together
  int threads = 1;                           // as WriteOptions::threads
  bool only_finite = false;                  // refuse other values, naming the tensor (bad_input)
  // Called once with each group of rows of dim 0 that is written.
  std::function<void(const ManifestTensor& tensor, const void* values, int64_t rows)> each_rows{};
  // Bytes of tensors written so far, and in total; each file is read back after that.
  std::function<void(uint64_t done, uint64_t total)> progress{};
  // Called directly before the step gets its final name; what it throws fails the write.
  std::function<void()> before_commit{};
  // Called with the name of every point of the protocol, in order; what it throws fails the write.
  std::function<void(const std::string& point)> at_point{};
};

struct WrittenStep {
  std::string directory;  // of the step
  uint64_t bytes = 0;     // of all its files and the manifest
};

// Writes DIRECTORY/step-S, S = content.step; makes `directory` if it is missing. Tensors are copied in groups of rows
// that together hold about a block, so memory does not depend on their sizes. The step appears completely or not at
// all: files are written to step-S.tmp, each is synced and read back, then the manifest is written, then the directory
// is renamed. An exception removes step-S.tmp; what a killed process left of it is removed by the next attempt. Two
// processes must not call it at once (core/directory_lock.h). Errors: step-S exists, a tensor is not in the source, has
// another shape there, or holds a value too large for its type here (bad_input); no room, a failing disk (crash); what
// the source throws.
WrittenStep write_step(TensorSource& source, const StepToWrite& step, const std::string& directory,
                       const StepWriteOptions& options = {});

}  // namespace shiftron
