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
  std::string path;      // "parameters/final_norm.weight"
  std::string mismatch;  // "only in the first", "[3] of float32 against [4] of float32", …; empty where elements can be
                         // compared
  int64_t unequal = 0;      // elements with other bits
  int64_t count = 0;        // elements
  double max_absolute = 0;  // NaN against a number: infinity
  double relative_l2 = 0;   // |a − b| / |a|; infinity where a = 0 ≠ b
  bool equal() const { return mismatch.empty() && unequal == 0; }
};

struct StepDifference {
  int64_t step_a = 0, step_b = 0;
  bool state_equal = false;               // of the trainer
  std::vector<TensorDifference> tensors;  // one for every tensor of either step, sorted by path
  bool equal() const;
};
// Bit by bit, under whatever layouts they were saved. Throws Error(no_checkpoint).
StepDifference diff_steps(const std::string& a, const std::string& b);

}  // namespace shiftron
