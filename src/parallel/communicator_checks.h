// What every communicator refuses before anything moves, and what it counts.
#pragma once

#include "parallel/communicator.h"

namespace shiftron {

// Of one rank's calls, for tensors of one device; groups of one also take tensors of meta. Each throws Error where the
// call is wrong, on every rank alike, and counts it, but in a group of one. True where bytes must be moved.
class CommunicatorCalls {
 public:
  CommunicatorCalls(const RankGroup& group, DeviceKind device) : group_(group), device_(device) {}
  bool all_reduce(const Stream& stream, const Tensor& tensor, Reduction reduction) const;
  bool all_gather(const Stream& stream, const ConstTensor& piece, const Tensor& whole) const;
  bool reduce_scatter(const Stream& stream, const ConstTensor& whole, const Tensor& piece) const;
  bool all_to_all(const Stream& stream, const ConstTensor& send, const Tensor& receive) const;
  bool broadcast(const Stream& stream, const Tensor& tensor, int root) const;
  bool send(const Stream& stream, const ConstTensor& tensor, int to) const;
  bool recv(const Stream& stream, const Tensor& tensor, int from) const;

 private:
  void check(const Stream& stream, const ConstTensor& tensor, int peer, const char* operation) const;
  bool count(const Stream& stream, const char* operation, int64_t bytes_handed_over, int64_t bytes) const;
  const RankGroup& group_;
  DeviceKind device_;
};

}  // namespace shiftron
