// Checks of communicator calls.
#include "parallel/communicator_checks.h"

namespace shiftron {

void CommunicatorCalls::check(const Stream& stream, const ConstTensor& tensor, int peer, const char* operation) const {
  const std::string& name = group_.name();
  const int size = group_.size();
  CHECK(stream.ledger != nullptr, name, " ", operation, " needs a ledger");
  CHECK(tensor.defined(), name, " ", operation, " of an undefined tensor");
  tensor.check_alive();
  CHECK(tensor.contiguous(), name, " ", operation, " of a tensor that is not contiguous: ", tensor.shape().text());
  CHECK(tensor.device() == device_ || (size == 1 && tensor.device() == DeviceKind::meta), name, " ", operation,
        " of a tensor on ", name_of(tensor.device()));
  CHECK(peer >= 0 && peer < size, name, " ", operation, ": no rank ", peer, " in a group of ", size);
}

bool CommunicatorCalls::count(const Stream& stream, const char* operation, int64_t bytes_handed_over,
                              int64_t bytes) const {
  if (group_.size() == 1) return false;
  stream.ledger->add_traffic(group_.name(), operation, bytes_handed_over);
  return bytes > 0 && device_ != DeviceKind::meta;
}

bool CommunicatorCalls::all_reduce(const Stream& stream, const Tensor& tensor, Reduction reduction) const {
  check(stream, tensor, 0, "all_reduce");
  CHECK(tensor.dtype() != DType::uint8 || reduction == Reduction::max, group_.name(), " all_reduce: uint8 has no sum");
  return count(stream, "all_reduce", tensor.bytes(), tensor.bytes());
}

bool CommunicatorCalls::all_gather(const Stream& stream, const ConstTensor& piece, const Tensor& whole) const {
  check(stream, piece, 0, "all_gather");
  check(stream, whole, 0, "all_gather");
  CHECK(piece.dtype() == whole.dtype() && piece.count() * group_.size() == whole.count(), group_.name(),
        " all_gather: ", group_.size(), " pieces of ", piece.shape().text(), " do not make ", whole.shape().text());
  return count(stream, "all_gather", piece.bytes(), piece.bytes());
}

bool CommunicatorCalls::reduce_scatter(const Stream& stream, const ConstTensor& whole, const Tensor& piece) const {
  check(stream, whole, 0, "reduce_scatter");
  check(stream, piece, 0, "reduce_scatter");
  CHECK(piece.dtype() == whole.dtype() && piece.count() * group_.size() == whole.count(), group_.name(),
        " reduce_scatter: ", whole.shape().text(), " is not ", group_.size(), " pieces of ", piece.shape().text());
  CHECK(piece.dtype() != DType::uint8, group_.name(), " reduce_scatter: uint8 has no sum");
  return count(stream, "reduce_scatter", whole.bytes(), whole.bytes());
}

bool CommunicatorCalls::all_to_all(const Stream& stream, const ConstTensor& send, const Tensor& receive) const {
  check(stream, send, 0, "all_to_all");
  check(stream, receive, 0, "all_to_all");
  CHECK(send.dtype() == receive.dtype() && send.count() == receive.count() && send.count() % group_.size() == 0,
        group_.name(), " all_to_all of ", send.shape().text(), " into ", receive.shape().text(), " among ",
        group_.size());
  return count(stream, "all_to_all", send.bytes(), send.bytes());
}

bool CommunicatorCalls::broadcast(const Stream& stream, const Tensor& tensor, int root) const {
  check(stream, tensor, root, "broadcast");
  return count(stream, "broadcast", group_.rank() == root ? tensor.bytes() : 0, tensor.bytes());
}

bool CommunicatorCalls::send(const Stream& stream, const ConstTensor& tensor, int to) const {
  check(stream, tensor, to, "send");
  CHECK(to != group_.rank(), group_.name(), " send: rank ", group_.rank(), " sends to itself");
  return count(stream, "send", tensor.bytes(), tensor.bytes());
}

bool CommunicatorCalls::recv(const Stream& stream, const Tensor& tensor, int from) const {
  check(stream, tensor, from, "recv");
  CHECK(from != group_.rank(), group_.name(), " recv: rank ", group_.rank(), " receives from itself");
  return count(stream, "recv", 0, tensor.bytes());
}

}  // namespace shiftron
