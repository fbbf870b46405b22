// What every communicator checks before anything moves, and what it counts.
#pragma once

#include "parallel/communicator.h"

namespace shiftron {

// Checks the calls of one rank, for tensors of one device; groups of one also accept meta tensors. Each function throws
// Error if the call is wrong, the same on every rank, counts the traffic unless the group has one rank, and returns
// whether bytes must be moved.
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
