// Communicator: the collectives and messages of one group of ranks; MPI, threads of one process, or meta behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace shiftron {

enum class Reduction { sum, max };

// A started operation. wait() returns when its tensors may be read, or written again; it throws what went wrong.
// Destroying a Work that was not waited for waits, and logs instead of throwing; while an exception unwinds it cancels.
class [[nodiscard]] Work {
 public:
  Work() = default;  // finished
  explicit Work(std::function<void()> finish) : finish_(std::move(finish)) {}
  ~Work();
  Work(Work&& other) noexcept : finish_(std::exchange(other.finish_, nullptr)) {}
  Work& operator=(Work&& other);
  void wait();

 private:
  std::function<void()> finish_;
};

// Every rank of the group makes the same calls in the same order. A group of one copies, without traffic.
// Sums run in the accumulation type of the dtype (bfloat16 in float32, rounded once; integers exactly), in rank order,
// so every CPU implementation returns the same bits; a NaN wins every max. Tensors are contiguous.
// Errors of a peer, or an abort, throw. One thread at a time uses a communicator; a helper thread has its own (split).
// Traffic is written to stream.ledger under name(), seconds under times.communication (recv: times.wait).
class Communicator {
 public:
  Communicator(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  const std::string& name() const { return name_; }  // the axis: "tp", "dp", "pp", "world", "kv_replica", "tied"
  int rank() const { return rank_; }
  int size() const { return size_; }

  Work all_reduce(Stream& stream, InOut tensor, Reduction reduction);
  Work all_gather(Stream& stream, ConstTensor piece, Tensor whole);      // whole = size() pieces in rank order
  Work reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece);  // sum; piece = part rank() of whole
  Work all_to_all(Stream& stream, ConstTensor send, Tensor receive);     // size() equal parts each
  Work broadcast(Stream& stream, InOut tensor, int root);
  Work send(Stream& stream, ConstTensor tensor, int to);  // staged: never waits for the receiver
  Work recv(Stream& stream, Tensor tensor, int from);     // messages between two ranks keep the order of their calls
  void barrier();

  // Control plane: strings of any length, not counted as traffic. On meta every rank says what this one says.
  std::string broadcast_text(const std::string& text, int root);
  std::vector<std::string> gather_text(const std::string& text, int root);  // empty vector on ranks other than root

  // The group of `members`, ranks of this communicator in the new group's order, this rank among them. Every member
  // calls it with the same arguments; other ranks meanwhile form groups of their own, or none. On meta nobody is asked.
  virtual std::unique_ptr<Communicator> split(const std::vector<int>& members, const std::string& name) = 0;
  // Wakes and fails every rank that waits for this one, now and later; used when this rank ends in an error.
  virtual void abort(const std::string& reason) = 0;

 protected:
  // Bytes move, nothing is summed; the base class makes reductions of them. Only called with size() > 1, bytes > 0.
  // Part r of a buffer begins r * stride bytes into it. What is received overlaps nothing that is sent, except that
  // `piece` may be part rank() of `whole`. On return, what was sent may be written again.
  virtual void exchange_all_to_all(const void* send, int64_t send_stride, void* receive, int64_t bytes) = 0;
  virtual void exchange_all_gather(const void* piece, void* whole, int64_t bytes) = 0;
  virtual void exchange_broadcast(void* data, int64_t bytes, int root) = 0;
  virtual void exchange_barrier() = 0;
  virtual void start_send(const void* data, int64_t bytes, int to) = 0;  // copies
  // Call what is returned to finish, drop it to cancel.
  virtual std::function<void()> start_recv(void* data, int64_t bytes, int from) = 0;
  virtual bool moves_bytes() const { return true; }  // false on meta: calls are checked and counted only

  // Throws unless `members` are distinct ranks of this group with this one among them; returns this one's place.
  int place_in(const std::vector<int>& members) const;

 private:
  void check(const Stream& stream, const ConstTensor& tensor, int peer, const char* operation) const;
  // Counts the call; true where bytes must move.
  bool begin(Stream& stream, const char* operation, int64_t bytes_handed_over, int64_t bytes) const;
  std::byte* staging(Stream& stream, int64_t bytes);
  std::string name_;
  int rank_;
  int size_;
  std::vector<std::byte> staging_;  // grows in the first step up to a fixed bound, constant afterwards
  int64_t staging_bytes_ = 0;       // what staging_ holds, or would hold on meta
};

// MPI_COMM_WORLD; initialises MPI (MPI_THREAD_MULTIPLE, else Error 76) with what it needs set before MPI_Init
// (yield when idle), and finalises it when destroyed, unless an exception unwinds: then the launcher ends the job.
// Works without a launcher as a world of one. Communicators must not outlive the session.
class MpiSession {
 public:
  static constexpr int64_t kPieceBytes = int64_t{1} << 30;  // of one MPI call: its counts are 32-bit
  explicit MpiSession(int64_t piece_bytes = kPieceBytes);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  std::unique_ptr<Communicator> world();
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int local_rank() const { return local_rank_; }    // on this host
  int local_ranks() const { return local_ranks_; }  // ranks that share this host
  [[noreturn]] void abort(int exit_code);           // ends the whole job at once

 private:
  int64_t piece_bytes_;
  int exceptions_at_start_;
  int rank_ = 0, ranks_ = 1, local_rank_ = 0, local_ranks_ = 1;
};

// Runs `body(world)` on `ranks` threads, each a rank of one world; an exception in one fails all waiters; the first
// exception is thrown again here after all threads have ended.
void run_thread_ranks(int ranks, const std::function<void(Communicator& world)>& body);

// A world in which one rank plans alone: calls are checked and counted, nothing moves.
std::unique_ptr<Communicator> make_meta_world(int rank, int ranks);
// A world of one.
std::unique_ptr<Communicator> make_single_world();

}  // namespace shiftron
