// Exchanges gradients and weights bucket by bucket: sums over every rank that holds a copy of a parameter or a part of its
// gradient, and, where optimizer state is divided (ZeRO-1, Rajbhandari et al. 2020), updated weights from their owners.
#pragma once

#include <vector>

#include "parallel/parameter.h"
#include "parallel/run.h"

namespace shiftron {

// The sums over data-parallel ranks start as soon as a bucket's gradients are complete; those over tp, over ranks that share a
// KV head and over the holders of a tied table are made behind them, of what this rank updates: copies stay alike to the
// bit even where the ranks of different dp groups add in different orders. Where the groups behind them may do so too, and
// nothing is divided, the first data-parallel rank's are sent to the others.
class BucketExchange {
 public:
  BucketExchange(const Groups& groups, ParameterSet& set) : groups_(groups), set_(set) {}

  // Of a step whose gradients begin at zero.
  void begin();
  // The gradients of (part, layer) will not change any more in this step, once the stream is done with what it was given;
  // every data-parallel rank says so in the same order. Once a step of each; of what nobody says it, finish() takes it.
  void complete(Stream& stream, Part part, int layer);
  // All are complete: orders the stream behind all sums. Divided: only this rank's part of each bucket then holds them.
  void finish(Stream& stream);
  // Behind the update of a bucket: its weights go to the ranks that did not update them, which await them where they
  // are read (ParameterSet::await_weights).
  void gather(Stream& stream, const Bucket& bucket);

 private:
  struct Sum {
    std::vector<std::pair<Part, int>> incomplete;
    bool started = false;
    Work work;
  };
  void start(Stream& stream, size_t bucket);
  void sum_over_holders(Stream& stream, const Bucket& bucket);
  Tensor updated(const Bucket& bucket, const Tensor& whole) const;  // what this rank updates of it

  const Groups& groups_;
  ParameterSet& set_;
  std::vector<Sum> sums_;  // of each bucket
};

}  // namespace shiftron
