// The order of samples, without an index: pure functions from a sample's number to a source and a window.
#pragma once

#include <cstdint>
#include <vector>

namespace shiftron {

// A permutation of [0, size), chosen by `key`: a Feistel network over the next power of four, repeated until in range.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key);  // size 1 to 2^62
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t round_function(uint64_t half, int round) const;
  uint64_t size_;
  uint64_t key_;
  int half_bits_;
  uint64_t half_mask_;
};

// Blend block: each source has its exact share of every block of this many samples.
constexpr int64_t kBlendBlock = 65536;

// Samples of each source within a block: shares of kBlendBlock by largest remainder; 0 if a source would never be read.
// Throws Error(bad_input) if a weight is not positive.
std::vector<int64_t> blend_quotas(const std::vector<double>& weights);

struct SampleLocation {
  int64_t source = 0;
  int64_t epoch = 0;   // of that source
  int64_t window = 0;  // within the source
  bool operator==(const SampleLocation&) const = default;
};

// Sample number → window. Every epoch of a source visits each of its windows once, in an order of its own.
class SampleOrder {
 public:
  // `windows` per source, at least 1 each; as many `weights`.
  SampleOrder(std::vector<int64_t> windows, const std::vector<double>& weights, uint64_t seed);
  SampleLocation locate(int64_t sample) const;                    // sample >= 0
  const std::vector<int64_t>& quotas() const { return quotas_; }  // samples of each source in kBlendBlock

 private:
  std::vector<int64_t> windows_;
  std::vector<int64_t> quotas_;
  uint64_t seed_;
};

}  // namespace shiftron
