// Digests and differences of logical tensors, independent of where and in which layout they are stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/tensor_source.h"

namespace shiftron {

// The hash tree of a tensor. Leaf i is the XXH3-128 of its elements [i · kLeafElements, (i + 1) · kLeafElements) in
// row-major order, little-endian; the last leaf may be shorter. A node is the XXH3-128 of the 32 bytes of its two
// children, each most significant byte first, as in its hexadecimal text; a last child without a partner moves up
// unchanged. With one leaf, the root is that leaf.
inline constexpr int64_t kLeafElements = int64_t{1} << 20;

class TreeHash {
 public:
  explicit TreeHash(uint64_t leaf_bytes) : leaf_bytes_(leaf_bytes) {}
  void update(const void* data, uint64_t bytes);  // the next bytes of the tensor
  Hash128 finish();                               // the root; update() must not follow

 private:
  const uint64_t leaf_bytes_;
  uint64_t filled_ = 0;  // bytes of the open leaf
  HashStream leaf_;
  std::vector<Hash128> leaves_;
};

struct TensorDigest {
  ManifestTensor tensor;
  Hash128 hash;  // XXH3-128 of the elements in logical order
  Hash128 tree;
};
struct StepDigest {
  std::vector<TensorDigest> tensors;  // in the order of the source
  // XXH3-128 of one line per tensor, sorted: "PATH DTYPE SHAPE TREE\n", as in "parameters/head.weight float32 [101, 24]
  // 0123…\n". It depends neither on the layout nor on how tensors are divided into files.
  Hash128 parameters;
  std::optional<Hash128> moments;  // of both groups together; nothing if there are none
};
// Memory: a few megabytes, or one row of a tensor. Throws Error(no_checkpoint).
StepDigest digest_source(TensorSource& source, const BytesRead& progress = {});
StepDigest digest_step(const std::string& step_directory, const BytesRead& progress = {});

// The first element, in row-major order, whose bits differ.
struct FirstDifference {
  Shape index;  // in the logical tensor
  double a = 0, b = 0;
  std::optional<uint64_t> ulp;  // distance in numbers of the compared type, −0 and 0 one apart; nothing if one is NaN
};

struct TensorDifference {
  std::string path;         // "parameters/final_norm.weight"
  std::string mismatch;     // "only in the first", "[3] of float32 vs. [4] of float32", …; empty if the elements can
                            // be compared
  int64_t unequal = 0;      // elements whose bits differ
  int64_t count = 0;        // elements
  double max_absolute = 0;  // infinity if one is NaN
  double relative_l2 = 0;   // |a − b| / |a|; infinity if a = 0 ≠ b
  std::optional<FirstDifference> first;
  bool equal() const { return mismatch.empty() && unequal == 0; }
};

struct DiffOptions {
  bool parameters_only = false;
  bool widen = false;  // tensors of different types are compared in the wider one; otherwise types must match
  BytesRead progress{};
};

// One entry for every tensor of either source, sorted by path. Compares bit by bit; memory as in digest_source().
// Throws Error(no_checkpoint).
std::vector<TensorDifference> diff_sources(TensorSource& a, TensorSource& b, const DiffOptions& options = {});

struct StepDifference {
  std::optional<int64_t> step_a, step_b;  // nothing for another program's files, which have no step
  std::optional<bool> state_equal;        // whether the trainers' states are equal; nothing if a side has none
  std::vector<TensorDifference> tensors;  // as diff_sources()
  bool parameters_only = false;
  // Compares the tensors' bits and, unless parameters_only, step and state.
  bool equal() const;
};
// The steps may have been saved under different layouts. Throws Error(no_checkpoint).
StepDifference diff_steps(const std::string& a, const std::string& b, const DiffOptions& options = {});

}  // namespace shiftron
