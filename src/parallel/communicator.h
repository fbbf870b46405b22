// Communicator: the collectives and messages of one group of ranks, each started on a stream.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/control_plane.h"

namespace shiftron {

enum class Reduction { sum, max };

// A started operation. Until it has been waited for, nothing may touch what it writes or write what it reads; an arena
// waits for it before it takes the tensors back. Destroying a Work that nobody waited for makes the stream that started
// it wait; while an exception unwinds, nothing waits.
class [[nodiscard]] Work {
 public:
  Work() = default;  // done
  Work(Stream& stream, std::shared_ptr<Pending> operation) : stream_(&stream), operation_(std::move(operation)) {}
  ~Work();
  Work(Work&& other) noexcept : stream_(other.stream_), operation_(std::exchange(other.operation_, nullptr)) {}
  Work& operator=(Work&& other);
  // Later work of the stream runs after the operation. Returns at once if the stream has a queue, otherwise when the
  // operation is done. Throws the operation's error if it is known.
  void wait(Stream& stream);
  void wait_on_host();  // returns when it is done

 private:
  Stream* stream_ = nullptr;
  std::shared_ptr<Pending> operation_;
};

// Every rank of the group starts the same operations in the same order. They run in that order, each after the earlier
// work of its stream. A send may block until it is received, and later operations with it: use one communicator per
// direction. A group of one copies, without traffic. Tensors are contiguous. Sums run in the accumulation type of the
// dtype (bfloat16 in float32, rounded once; integers exactly); all ranks get the same bits; a NaN wins every max.
// Errors of a peer, or an abort, throw. Only one thread at a time may use a communicator.
// Traffic is written to stream.ledger under name() at the call; seconds under times.communication (recv: times.wait).
class Communicator : public virtual RankGroup {
 public:
  virtual Work all_reduce(Stream& stream, InOut tensor, Reduction reduction) = 0;
  // whole = size() pieces in rank order; `piece` may be part rank() of whole.
  virtual Work all_gather(Stream& stream, ConstTensor piece, Tensor whole) = 0;
  // sum; piece = part rank() of the sum, and may be that part of `whole`.
  virtual Work reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece) = 0;
  virtual Work all_to_all(Stream& stream, ConstTensor send, Tensor receive) = 0;  // size() equal parts each
  virtual Work broadcast(Stream& stream, InOut tensor, int root) = 0;
  // most_ahead > 0: if messages are copied, at most so many copies wait for the receiver; a further send waits too.
  virtual Work send(Stream& stream, ConstTensor tensor, int to, int most_ahead = 0) = 0;
  virtual Work recv(Stream& stream, Tensor tensor, int from) = 0;
  // Whether all groups that sum the same numbers on such a stream get the same bits; otherwise only the ranks of one
  // group do. Sums of two numbers do not depend on the order. On meta: as on the planned device.
  virtual bool sums_in_rank_order(const Stream&) const { return false; }
  // On a rank that fails: running operations stop waiting for peers. Call it on all communicators before abandon().
  virtual void give_up() noexcept {}
  // On a rank that fails: gives up running operations and returns when none of them touches memory any more.
  virtual void abandon() noexcept = 0;
  // For a second thread while the thread that uses the communicator waits: the oldest running operation, "" if there is
  // none or it is unknown. Throws Error(hang) if a peer is known to be lost.
  virtual std::string under_way() { return {}; }
};

}  // namespace shiftron
