// Digests and differences of logical tensors, wherever and under whatever layout they are stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/tensor_source.h"

namespace shiftron {

// The tree of a tensor: leaf i is the XXH3-128 of its elements [i · kLeafElements, (i + 1) · kLeafElements) in
// row-major order, little-endian, the last leaf shorter. A node is the XXH3-128 of the 32 bytes of its two children,
// each as its hexadecimal text reads (most significant byte first); a last child without a partner is its own parent.
// One leaf: the tree is that leaf.
inline constexpr int64_t kLeafElements = int64_t{1} << 20;

class TreeHash {
 public:
  explicit TreeHash(uint64_t leaf_bytes) : leaf_bytes_(leaf_bytes) {}
  void update(const void* data, uint64_t bytes);  // the next ones
  Hash128 finish();                               // of all; nothing may follow

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
  // XXH3-128 of one line per tensor, sorted: "PATH DTYPE SHAPE TREE\n", as in "parameters/head.weight float32
  // [101, 24] 0123…\n". No layout changes it, and no cut into files.
  Hash128 parameters;
  std::optional<Hash128> moments;  // of both groups together; nothing where there are none
};
// Memory: a few megabytes, or one row of a tensor. Throws Error(no_checkpoint).
StepDigest digest_source(TensorSource& source, const BytesRead& progress = {});
StepDigest digest_step(const std::string& step_directory, const BytesRead& progress = {});

// The first element, in row-major order, with other bits.
struct FirstDifference {
  Shape index;  // in the logical tensor
  double a = 0, b = 0;
  std::optional<uint64_t>
      ulp;  // numbers of the compared type from one to the other, −0 and 0 one apart; nothing beside a NaN
};

struct TensorDifference {
  std::string path;      // "parameters/final_norm.weight"
  std::string mismatch;  // "only in the first", "[3] of float32 against [4] of float32", …; empty where elements can be
                         // compared
  int64_t unequal = 0;      // elements with other bits
  int64_t count = 0;        // elements
  double max_absolute = 0;  // NaN against a number: infinity
  double relative_l2 = 0;   // |a − b| / |a|; infinity where a = 0 ≠ b
  std::optional<FirstDifference> first;
  bool equal() const { return mismatch.empty() && unequal == 0; }
};

struct DiffOptions {
  bool parameters_only = false;
  bool widen = false;  // tensors of two types are compared in the wider one; else types must be the same
  BytesRead progress{};
};

// One entry for every tensor of either source, sorted by path. Bit by bit; memory as digest_source(). Throws
// Error(no_checkpoint).
std::vector<TensorDifference> diff_sources(TensorSource& a, TensorSource& b, const DiffOptions& options = {});

struct StepDifference {
  std::optional<int64_t> step_a, step_b;  // nothing: another program's files, which know no step
  std::optional<bool> state_equal;        // of the trainer; nothing where one of them has none
  std::vector<TensorDifference> tensors;  // as diff_sources()
  bool parameters_only = false;
  // Of parameters alone: their bits; else step and state too.
  bool equal() const;
};
// Under whatever layouts they were saved. Throws Error(no_checkpoint).
StepDifference diff_steps(const std::string& a, const std::string& b, const DiffOptions& options = {});

}  // namespace shiftron
