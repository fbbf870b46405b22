// Digests and differences of logical tensors, whatever layout they were saved under.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace shiftron {

struct TensorDigest {
  ManifestTensor tensor;
  Hash128 hash;  // XXH3-128 of the elements in logical order
};
// In the order of the manifest's tensors. Memory: a few megabytes, or one row of a tensor. Throws Error(no_checkpoint).
std::vector<TensorDigest> digest_step(const std::string& step_directory);

struct TensorDifference {
  std::string path;               // "parameters/final_norm.weight"
  std::string mismatch;           // "only in A", "shape [3] against [4]", …; empty where elements can be compared
  int64_t unequal = 0;            // elements with other bits
  int64_t count = 0;              // elements
  double max_absolute = 0;        // NaN against a number: infinity
  double relative_l2 = 0;         // |a − b| / |a|; infinity where a = 0 ≠ b
  bool equal() const { return mismatch.empty() && unequal == 0; }
};
// One entry for every tensor of either step, sorted. Throws Error(no_checkpoint).
std::vector<TensorDifference> diff_steps(const std::string& a, const std::string& b);

// Everything wrong with a step directory, one line each, naming file and tensor; empty = valid. Reads every byte, and
// compares what HDF5 sees in every file with the manifest.
std::vector<std::string> verify_step(const std::string& step_directory);

}  // namespace shiftron
