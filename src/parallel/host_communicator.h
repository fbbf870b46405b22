// HostCommunicator: a communicator that moves bytes of the host's memory (MPI, threads of one process, or meta), and
// the control plane of the same ranks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/communicator_checks.h"
#include "parallel/watchdog.h"

namespace shiftron {

// Sums are made here, above the exchange of bytes, in rank order: every implementation returns the same bits.
// Without a queue an operation is done when its call returns, except recv; a send does not wait for its receiver,
// unless most_ahead limits it. With one, operations run in this communicator's own queue.
class HostCommunicator : public Communicator, public ControlPlane {
 public:
  HostCommunicator(const std::string& name, int rank, int size) : RankGroup(name, rank, size) {}

  Work all_reduce(Stream& stream, InOut tensor, Reduction reduction) override;
  Work all_gather(Stream& stream, ConstTensor piece, Tensor whole) override;
  Work reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece) override;
  Work all_to_all(Stream& stream, ConstTensor send, Tensor receive) override;
  Work broadcast(Stream& stream, InOut tensor, int root) override;
  Work send(Stream& stream, ConstTensor tensor, int to, int most_ahead = 0) override;
  Work recv(Stream& stream, Tensor tensor, int from) override;
  bool sums_in_rank_order(const Stream& stream) const override { return stream.backend() == DeviceKind::cpu; }

  void abandon() noexcept override {
    if (queue_ != nullptr) queue_->drop();
  }

  void barrier() override;
  std::string broadcast_text(const std::string& text, int root) override;
  std::vector<std::string> gather_text(const std::string& text, int root) override;

  // Makes the group of `members`: ranks of this communicator in the new group's order, with this one. Every member
  // calls it with the same arguments; other ranks may form other groups meanwhile. On meta nothing is exchanged.
  virtual std::unique_ptr<HostCommunicator> split(const std::vector<int>& members, const std::string& name) = 0;

 protected:
  // Bytes move, nothing is summed. Only called with size() > 1, bytes > 0.
  // Part r of a buffer begins r * stride bytes into it. What is received overlaps nothing that is sent, except that
  // `piece` may be part rank() of `whole`. On return, what was sent may be written again.
  // While a queue's operation waits for a peer, it lets other operations run (core/queue.h).
  virtual void exchange_all_to_all(const void* send, int64_t send_stride, void* receive, int64_t bytes) = 0;
  virtual void exchange_all_gather(const void* piece, void* whole, int64_t bytes) = 0;
  virtual void exchange_broadcast(void* data, int64_t bytes, int root) = 0;
  virtual void exchange_barrier() = 0;
  virtual void start_send(const void* data, int64_t bytes, int to) = 0;  // copies
  virtual void wait_for_receivers(int to, int most) = 0;                 // until at most so many copies wait for `to`
  // Call the result to finish, destroy it to cancel.
  virtual std::function<void()> start_recv(void* data, int64_t bytes, int from) = 0;
  virtual bool moves_bytes() const { return true; }  // false on meta: calls are checked and counted only

  // Call first in a destructor: operations that wait unwind through the exchanges.
  void drop_operations() noexcept { queue_.reset(); }

  // Throws unless `members` are distinct ranks of this group with this one among them; returns this one's place.
  int place_in(const std::vector<int>& members) const;

 private:
  CommunicatorCalls calls() const;
  // Runs `body` now, or in the queue after the stream's work so far.
  template <typename Body>
  Work start(Stream& stream, ConstTensor read, Tensor written, Body body);
  void count_staging(Stream& stream, int64_t bytes);
  std::byte* staging(int64_t bytes);  // inside an operation
  std::vector<std::byte> staging_;    // grows in the first step up to a fixed bound, constant afterwards
  int64_t staging_bytes_ = 0;         // what staging_ holds, or would hold on meta
  std::unique_ptr<Queue> queue_;      // if streams have one
};

// MPI_COMM_WORLD. Initialises MPI (MPI_THREAD_MULTIPLE, otherwise Error 76) after setting what MPI_Init reads (yield
// when idle), and finalises it when destroyed, unless an exception unwinds: then the launcher ends the job.
// A process that no launcher started is a world of one and does not start MPI: it needs no network, no folder for
// temporary files and no daemon. Communicators must not outlive the session.
class MpiSession {
 public:
  static constexpr int64_t kPieceBytes = int64_t{1} << 30;  // of one MPI call: its counts are 32-bit
  explicit MpiSession(int64_t piece_bytes = kPieceBytes);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  std::unique_ptr<HostCommunicator> world();
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int local_rank() const { return local_rank_; }  // on this host
  // processors_of_process() of each rank of this host, by local rank.
  const std::vector<std::vector<int>>& local_processors() const { return local_processors_; }
  [[noreturn]] void abort(int exit_code);  // ends the whole job at once

  // Launchers may let ranks continue after a peer has failed. So the failing rank sends its exit code to all others,
  // and waits at most a second until they have received it.
  void report_failure(int exit_code);
  // Starts a thread that receives it and calls `on_failure` some seconds later, unless the session has ended by then.
  // The thread also informs the other ranks while this one waits for files, and pauses `watchdog` while one of them
  // does: ranks that wait for a rank that waits for files must not report a hang.
  void listen_for_failures(std::function<void(int rank, int exit_code)> on_failure, Watchdog& watchdog);

 private:
  void hear();
  void share_file_waits();

  int64_t piece_bytes_;
  int exceptions_at_start_;
  bool uses_mpi_ = false;
  int rank_ = 0, ranks_ = 1, local_rank_ = 0;
  std::vector<std::vector<int>> local_processors_;
  int failure_sent_ = 0;  // memory of a message
  std::function<void(int rank, int exit_code)> on_failure_;
  Watchdog* watchdog_ = nullptr;
  struct FileWaitMessages;
  std::unique_ptr<FileWaitMessages> file_wait_messages_;  // of listener_
  std::mutex mutex_;
  std::condition_variable ends_changed_;
  bool ends_ = false;
  std::thread listener_;
};

// Runs `body(world)` on `ranks` threads, each a rank of one world. An exception in one fails all waiting ones; the
// first exception is rethrown here after all threads have ended.
void run_thread_ranks(int ranks, const std::function<void(HostCommunicator& world)>& body);

// A world in which one rank plans alone: calls are checked and counted, nothing moves.
std::unique_ptr<HostCommunicator> make_meta_world(int rank, int ranks);
// A world of one.
std::unique_ptr<HostCommunicator> make_single_world();

}  // namespace shiftron
