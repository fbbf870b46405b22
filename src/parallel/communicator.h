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

// A started operation. Until it was waited for, nobody may touch what it writes, nor write what it reads; an arena that
// takes its tensors back waits for it by itself. Destroying a Work that nobody waited for orders the stream that started it
// behind it; while an exception unwinds it is given up.
class [[nodiscard]] Work {
 public:
  Work() = default;  // done
  Work(Stream& stream, std::shared_ptr<Pending> operation) : stream_(&stream), operation_(std::move(operation)) {}
  ~Work();
  Work(Work&& other) noexcept : stream_(other.stream_), operation_(std::exchange(other.operation_, nullptr)) {}
  Work& operator=(Work&& other);
  // What is given to the stream from now on is done behind the operation. Returns at once where the stream has a queue;
  // where it has none, when the operation is done. Throws what went wrong if that is known.
  void wait(Stream& stream);
  void wait_on_host();  // returns when it is done

 private:
  Stream* stream_ = nullptr;
  std::shared_ptr<Pending> operation_;
};

// Every rank of the group starts the same operations in the same order; they are done in that order, behind what was given
// to their streams before. A send may wait for its receiver, and what stands behind it too: messages of one communicator go
// one way. A group of one copies, without traffic. Tensors are contiguous. Sums run in the accumulation type
// of the dtype (bfloat16 in float32, rounded once; integers exactly); all ranks get the same bits; a NaN wins every max.
// Errors of a peer, or an abort, throw. One thread at a time uses a communicator.
// Traffic is written to stream.ledger under name() at the call; seconds under times.communication (recv: times.wait).
class Communicator : public virtual RankGroup {
 public:
  virtual Work all_reduce(Stream& stream, InOut tensor, Reduction reduction) = 0;
  // whole = size() pieces in rank order; `piece` may be part rank() of it.
  virtual Work all_gather(Stream& stream, ConstTensor piece, Tensor whole) = 0;
  // sum; piece = part rank() of whole, and may lie there.
  virtual Work reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece) = 0;
  virtual Work all_to_all(Stream& stream, ConstTensor send, Tensor receive) = 0;  // size() equal parts each
  virtual Work broadcast(Stream& stream, InOut tensor, int root) = 0;
  // most_ahead > 0: where messages are copied, no more of this rank's wait for their receiver; a further send does too.
  virtual Work send(Stream& stream, ConstTensor tensor, int to, int most_ahead = 0) = 0;
  virtual Work recv(Stream& stream, Tensor tensor, int from) = 0;
  // Whether every group that sums the same numbers on such a stream gets the same bits; else one group's ranks alone do.
  // Sums of two numbers are those of any order. On meta: as on the device that is planned for.
  virtual bool sums_in_rank_order(const Stream&) const { return false; }
  // Of a rank that fails: what is under way waits for no peer any more. Behind it, of all communicators: abandon().
  virtual void give_up() noexcept {}
  // Of a rank that fails: gives up what is under way, returns when nothing of it touches memory any more.
  virtual void abandon() noexcept = 0;
  // For another thread than the one that uses it, while that waits: the oldest operation that is under way, "" where
  // none is or nobody knows. An Error(hang) where a peer is known to be lost.
  virtual std::string under_way() { return {}; }
};

}  // namespace shiftron
