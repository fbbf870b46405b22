// Exchanges gradients and weights bucket by bucket: sums gradients over all ranks that hold a copy of a parameter or a
// part of its gradient and, if optimizer state is divided (ZeRO-1, Rajbhandari et al. 2020), sends updated weights.
#pragma once

#include <vector>

#include "parallel/parameter.h"
#include "parallel/run.h"

namespace shiftron {

// Sums over data-parallel ranks start as soon as a bucket's gradients are complete. The sums over tp, over ranks that
// share a KV head and over the holders of a tied table follow, for the part that this rank updates: so copies stay
// bitwise equal even if different dp groups add in different orders. If these later groups may also add in different
// orders and nothing is divided, the first data-parallel rank sends its sums to the others.
class BucketExchange {
 public:
  BucketExchange(const Groups& groups, ParameterSet& set) : groups_(groups), set_(set) {}

  // Begins a step; gradients are zero.
  void begin();
  // The gradients of (part, layer) are final for this step once the stream has done its work so far. All data-parallel
  // ranks call it in the same order, at most once per step for each; finish() exchanges what was never completed.
  void complete(Stream& stream, Part part, int layer);
  // All gradients are complete: orders the stream after all sums. If divided, only this rank's part of each bucket then
  // holds sums.
  void finish(Stream& stream);
  // After the update of a bucket: sends its weights to the ranks that did not update them, which wait before they read
  // them (ParameterSet::await_weights).
  void gather(Stream& stream, const Bucket& bucket);

 private:
  struct Sum {
    std::vector<std::pair<Part, int>> incomplete;
    bool started = false;
    Work work;
  };
  void start(Stream& stream, size_t bucket);
  void sum_over_holders(Stream& stream, const Bucket& bucket);
  Tensor updated(const Bucket& bucket, const Tensor& whole) const;  // the part that this rank updates

  const Groups& groups_;
  ParameterSet& set_;
  std::vector<Sum> sums_;  // of each bucket
};

}  // namespace shiftron
