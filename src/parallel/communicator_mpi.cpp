// Communicators over MPI: the only file that speaks MPI.
#define OMPI_SKIP_MPICXX 1  // the C interface only
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <list>
#include <numeric>

#include "core/environment.h"
#include "core/log.h"
#include "core/thread_without_signals.h"
#include "kernels/processors.h"
#include "parallel/host_communicator.h"
#include "parallel/launcher.h"
#include "parallel/shared_memory.h"

namespace shiftron {
namespace {

constexpr int kMessageTag = 0;   // send and recv
constexpr int kExchangeTag = 1;  // inside of collectives
constexpr int kFailureTag = 2;   // in MPI_COMM_WORLD, like the next one
constexpr int kFileWaitTag = 3;

// MPI reports a lost peer in these unspecific classes; a wrong argument or size is the program's fault.
ExitCode exit_code_of(int error_class) {
  switch (error_class) {
    case MPI_ERR_OTHER:
    case MPI_ERR_INTERN:
    case MPI_ERR_UNKNOWN:
    case MPI_ERR_IN_STATUS:
    case MPI_ERR_PENDING:
      return ExitCode::hang;
    default:
      return ExitCode::crash;
  }
}

void check_mpi(int code, const std::string& group, const char* operation) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_string(code, text, &length);
  MPI_Error_class(code, &error_class);
  throw Error("group " + group + ", " + operation + ": " + text, exit_code_of(error_class));
}

// Inside a queue's operation, other operations run until the requests are done; throws if the operation is dropped.
int wait_for(std::vector<MPI_Request>& requests, MPI_Status* statuses) {
  const int count = static_cast<int>(requests.size());
  if (Turns::of_this_thread() == nullptr) return MPI_Waitall(count, requests.data(), statuses);
  for (int done = 0;;) {
    const int code = MPI_Testall(count, requests.data(), &done, statuses);
    if (code != MPI_SUCCESS || done) return code;
    yield_to_other_operations();
  }
}

void wait_all(std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses, const std::string& group,
              const char* operation) {
  statuses.resize(requests.size());
  int code = wait_for(requests, statuses.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : statuses) {
      if (status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING) code = status.MPI_ERROR;
    }
  }
  check_mpi(code, group, operation);
  requests.clear();  // after an error the caller cancels what is still pending
}

// So that MPI does not write into released memory.
void cancel(std::vector<MPI_Request>& requests) {
  for (MPI_Request& request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
  requests.clear();
}

// A posted receive; cancelled if it is destroyed unfinished.
struct PostedReceive {
  std::vector<MPI_Request> requests;
  std::vector<int> lengths;
  ~PostedReceive() { cancel(requests); }
};

// The copy of a message until MPI has sent it.
struct StagedSend {
  std::vector<std::byte> bytes;  // keeps its capacity
  std::vector<MPI_Request> requests;
};

class MpiCommunicator : public HostCommunicator {
 public:
  MpiCommunicator(MPI_Comm comm, const std::string& name, int rank, int size, int64_t piece_bytes)
      : RankGroup(name, rank, size), HostCommunicator(name, rank, size), comm_(comm), piece_bytes_(piece_bytes) {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }

  // While an exception unwinds, peers may be gone, so nothing is waited for; MPI keeps the memory of unfinished sends.
  ~MpiCommunicator() override {
    drop_operations();
    if (comm_ == MPI_COMM_NULL) return;
    if (std::uncaught_exceptions() > 0) {
      for (StagedSend& send : sends_) new StagedSend(std::move(send));
      return;
    }
    try {
      for (StagedSend& send : sends_) wait_all(send.requests, statuses_, name(), "send");
      check_mpi(MPI_Comm_free(&comm_), name(), "free");
    } catch (const std::exception& error) {
      print_to_stderr(error.what());
    }
  }

  std::unique_ptr<HostCommunicator> split(const std::vector<int>& members, const std::string& group_name) override {
    const int place = place_in(members);
    const int count = static_cast<int>(members.size());
    MPI_Comm comm = MPI_COMM_NULL;  // a group of one does not communicate
    if (count > 1) {
      MPI_Group mine = MPI_GROUP_NULL;
      MPI_Group theirs = MPI_GROUP_NULL;
      check_mpi(MPI_Comm_group(comm_, &mine), name(), "split");
      check_mpi(MPI_Group_incl(mine, count, members.data(), &theirs), name(), "split");
      check_mpi(MPI_Comm_create_group(comm_, theirs, kExchangeTag, &comm), name(), "split");
      MPI_Group_free(&theirs);
      MPI_Group_free(&mine);
    }
    return std::make_unique<MpiCommunicator>(comm, group_name, place, count, piece_bytes_);
  }

 protected:
  void exchange_all_to_all(const void* send, int64_t send_stride, void* receive, int64_t bytes) override {
    recycle();
    exchange(static_cast<const std::byte*>(send), send_stride, static_cast<std::byte*>(receive), bytes, "all_to_all");
  }

  void exchange_all_gather(const void* piece, void* whole, int64_t bytes) override {
    recycle();
    if (bytes > piece_bytes_ / size()) {
      return exchange(static_cast<const std::byte*>(piece), 0, static_cast<std::byte*>(whole), bytes, "all_gather");
    }
    const int length = static_cast<int>(bytes);
    const bool in_place = static_cast<const std::byte*>(piece) == static_cast<std::byte*>(whole) + rank() * bytes;
    const void* const own = in_place ? MPI_IN_PLACE : piece;
    if (Turns::of_this_thread() != nullptr) {
      std::vector<MPI_Request> request(1, MPI_REQUEST_NULL);
      check_mpi(MPI_Iallgather(own, length, MPI_BYTE, whole, length, MPI_BYTE, comm_, request.data()), name(),
                "all_gather");
      return wait_all(request, statuses_, name(), "all_gather");
    }
    check_mpi(MPI_Allgather(own, length, MPI_BYTE, whole, length, MPI_BYTE, comm_), name(), "all_gather");
  }

  void exchange_broadcast(void* data, int64_t bytes, int root) override {
    recycle();
    for_each_piece(bytes, [&](int64_t begin, int length) {
      std::byte* const piece = static_cast<std::byte*>(data) + begin;
      if (Turns::of_this_thread() != nullptr) {
        std::vector<MPI_Request> request(1, MPI_REQUEST_NULL);
        check_mpi(MPI_Ibcast(piece, length, MPI_BYTE, root, comm_, request.data()), name(), "broadcast");
        return wait_all(request, statuses_, name(), "broadcast");
      }
      check_mpi(MPI_Bcast(piece, length, MPI_BYTE, root, comm_), name(), "broadcast");
    });
  }

  void exchange_barrier() override {
    recycle();
    check_mpi(MPI_Barrier(comm_), name(), "barrier");
  }

  void start_send(const void* data, int64_t bytes, int to) override {
    recycle();
    if (spare_.empty()) spare_.emplace_back();
    auto place = spare_.begin();  // the first that is large enough, otherwise the first
    for (auto it = spare_.begin(); it != spare_.end(); ++it) {
      if (static_cast<int64_t>(it->bytes.capacity()) < bytes) continue;
      place = it;
      break;
    }
    sends_.splice(sends_.end(), spare_, place);
    StagedSend& send = sends_.back();
    const std::byte* begin = static_cast<const std::byte*>(data);
    send.bytes.assign(begin, begin + bytes);
    for_each_piece(bytes, [&](int64_t offset, int length) {
      check_mpi(MPI_Isend(send.bytes.data() + offset, length, MPI_BYTE, to, kMessageTag, comm_,
                          &send.requests.emplace_back(MPI_REQUEST_NULL)),
                name(), "send");
    });
  }

  void wait_for_receivers(int, int most) override {  // a channel has one receiver, so all sends are to it
    recycle();
    while (static_cast<int>(sends_.size()) > most) {
      std::vector<MPI_Status> statuses;
      wait_all(sends_.front().requests, statuses, name(), "send");
      recycle();
    }
  }

  std::function<void()> start_recv(void* data, int64_t bytes, int from) override {
    recycle();
    const auto receive = std::make_shared<PostedReceive>();
    for_each_piece(bytes, [&](int64_t offset, int length) {
      receive->lengths.push_back(length);
      check_mpi(MPI_Irecv(static_cast<std::byte*>(data) + offset, length, MPI_BYTE, from, kMessageTag, comm_,
                          &receive->requests.emplace_back(MPI_REQUEST_NULL)),
                name(), "recv");
    });
    return [this, receive, from] {
      std::vector<MPI_Status> statuses;
      wait_all(receive->requests, statuses, name(), "recv");
      for (size_t i = 0; i < statuses.size(); ++i) {
        int received = 0;
        MPI_Get_count(&statuses[i], MPI_BYTE, &received);
        CHECK(received == receive->lengths[i], "group ", name(), ", recv: rank ", from, " sent ", received,
              " bytes, but ", receive->lengths[i], " were expected");
      }
    };
  }

 private:
  template <typename Body>
  void for_each_piece(int64_t bytes, const Body& body) const {
    for (int64_t begin = 0; begin < bytes; begin += piece_bytes_) {
      body(begin, static_cast<int>(std::min(piece_bytes_, bytes - begin)));
    }
  }

  // Part r of what this rank sends (at r * stride) goes to rank r, which receives it as part rank().
  void exchange(const std::byte* send, int64_t stride, std::byte* receive, int64_t bytes, const char* operation) {
    for_each_piece(bytes, [&](int64_t begin, int length) {
      for (int step = 1; step < size(); ++step) {
        const int from = (rank() + size() - step) % size();
        check_mpi(MPI_Irecv(receive + from * bytes + begin, length, MPI_BYTE, from, kExchangeTag, comm_,
                            &requests_.emplace_back(MPI_REQUEST_NULL)),
                  name(), operation);
      }
      for (int step = 1; step < size(); ++step) {
        const int to = (rank() + step) % size();
        check_mpi(MPI_Isend(send + to * stride + begin, length, MPI_BYTE, to, kExchangeTag, comm_,
                            &requests_.emplace_back(MPI_REQUEST_NULL)),
                  name(), operation);
      }
      const std::byte* own = send + rank() * stride + begin;
      std::byte* target = receive + rank() * bytes + begin;
      if (own != target) std::memcpy(target, own, static_cast<size_t>(length));
      try {
        wait_all(requests_, statuses_, name(), operation);
      } catch (...) {
        cancel(requests_);
        throw;
      }
    });
  }

  // Reuses the staging of finished sends.
  void recycle() {
    for (auto send = sends_.begin(); send != sends_.end();) {
      int done = 0;
      check_mpi(MPI_Testall(static_cast<int>(send->requests.size()), send->requests.data(), &done, MPI_STATUSES_IGNORE),
                name(), "send");
      const auto next = std::next(send);
      if (done) {
        send->requests.clear();
        spare_.splice(spare_.begin(), sends_, send);
      }
      send = next;
    }
  }

  MPI_Comm comm_;
  int64_t piece_bytes_;
  std::list<StagedSend> sends_;  // unfinished, oldest first
  std::list<StagedSend> spare_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
};

// `own` of each rank of `comm`, on every rank.
std::vector<std::vector<int>> gathered(MPI_Comm comm, const std::vector<int>& own) {
  int ranks = 0;
  MPI_Comm_size(comm, &ranks);
  const int length = static_cast<int>(own.size());
  std::vector<int> lengths(static_cast<size_t>(ranks));
  check_mpi(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm), "host", "all_gather");
  std::vector<int> begins(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::vector<int> joined(static_cast<size_t>(begins.back() + lengths.back()));
  check_mpi(MPI_Allgatherv(own.data(), length, MPI_INT, joined.data(), lengths.data(), begins.data(), MPI_INT, comm),
            "host", "all_gather");
  std::vector<std::vector<int>> all;
  for (size_t i = 0; i < lengths.size(); ++i) {
    all.emplace_back(joined.begin() + begins[i], joined.begin() + begins[i] + lengths[i]);
  }
  return all;
}

}  // namespace

MpiSession::MpiSession(int64_t piece_bytes)
    : piece_bytes_(piece_bytes), exceptions_at_start_(std::uncaught_exceptions()) {
  CHECK(piece_bytes > 0 && piece_bytes <= kPieceBytes, "piece_bytes ", piece_bytes);
  const LaunchedTasks launched = launched_tasks();
  uses_mpi_ = !is_started_without_launcher();
  if (!uses_mpi_) {
    require_all_tasks(launched, 1);
    local_processors_ = {processors_of_process()};
    return;
  }
  int initialized = 0;
  MPI_Initialized(&initialized);
  CHECK(!initialized, "MPI can be initialized only once per process");
  // Without it, ranks that share a core wait for each other's time slices: milliseconds instead of microseconds.
  set_environment_default("OMPI_MCA_mpi_yield_when_idle", "1");
  // Network libraries take 0.2 s to find that there is no network; shared memory needs none.
  if (is_on_one_host()) set_environment_default("OMPI_MCA_pml", "ob1");
  if (!may_read_other_processes()) set_environment_default("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
  report_full_shared_memory();
  set_environment_default("OMPI_MCA_opal_signal", "6,8,11");  // MPI reports these signals, but not SIGBUS (7)
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "world", "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE) {
    throw_bad_input("this MPI library provides thread level ", provided, ", but MPI_THREAD_MULTIPLE (",
                    MPI_THREAD_MULTIPLE, ") is needed; use an MPI library that was built with thread support");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  require_all_tasks(launched, ranks_);
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host), "world",
            "finding the ranks of this host");
  MPI_Comm_rank(host, &local_rank_);
  local_processors_ = gathered(host, processors_of_process());
  MPI_Comm_free(&host);
}

void MpiSession::report_failure(int exit_code) {
  if (ranks_ == 1) return;  // and MPI may not have started
  failure_sent_ = exit_code;
  std::vector<MPI_Request> requests;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    MPI_Isend(&failure_sent_, 1, MPI_INT, rank, kFailureTag, MPI_COMM_WORLD, &requests.emplace_back(MPI_REQUEST_NULL));
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (int done = 0; !done && std::chrono::steady_clock::now() < until;) {  // a rank that has left receives none
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
      break;
  }
}

struct MpiSession::FileWaitMessages {
  std::vector<MPI_Request> requests;  // of the last messages sent
  std::chrono::steady_clock::time_point sent = std::chrono::steady_clock::time_point::min();
};

void MpiSession::listen_for_failures(std::function<void(int rank, int exit_code)> on_failure, Watchdog& watchdog) {
  if (ranks_ == 1) return;
  on_failure_ = std::move(on_failure);
  watchdog_ = &watchdog;
  file_wait_messages_ = std::make_unique<FileWaitMessages>();
  listener_ = thread_without_signals([this] { hear(); });
}

// A message says that its sender has been waiting for files. It is repeated while that lasts, and counts for a limited
// time, so that a dead rank does not pause the others for long.
void MpiSession::share_file_waits() {
  constexpr double kShort = 0.5;  // seconds; shorter waits are not reported to other ranks
  constexpr std::chrono::seconds kRepeat{5};
  constexpr double kCounts = 15;  // seconds
  for (;;) {
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kFileWaitTag, MPI_COMM_WORLD, &there, &status) != MPI_SUCCESS || !there) break;
    MPI_Recv(nullptr, 0, MPI_INT, status.MPI_SOURCE, kFileWaitTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    watchdog_->pause(kCounts);
  }
  auto& [requests, sent] = *file_wait_messages_;
  const auto now = std::chrono::steady_clock::now();
  if (!watchdog_->waits_for_files(kShort) || now < sent + kRepeat) return;
  int done = 0;
  MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  if (!done) return;
  requests.clear();
  sent = now;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    MPI_Isend(nullptr, 0, MPI_INT, rank, kFileWaitTag, MPI_COMM_WORLD, &requests.emplace_back(MPI_REQUEST_NULL));
  }
}

void MpiSession::hear() {
  constexpr std::chrono::milliseconds kAsk{500};
  constexpr std::chrono::seconds kToLeave{3};  // for ranks that fail for the same reason, and for saves nearly done
  std::unique_lock lock(mutex_);
  while (!ends_changed_.wait_for(lock, kAsk, [this] { return ends_; })) {
    share_file_waits();
    int there = 0, exit_code = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kFailureTag, MPI_COMM_WORLD, &there, &status) != MPI_SUCCESS || !there) continue;
    MPI_Recv(&exit_code, 1, MPI_INT, status.MPI_SOURCE, kFailureTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!ends_changed_.wait_for(lock, kToLeave, [this] { return ends_; })) on_failure_(status.MPI_SOURCE, exit_code);
    return;
  }
}

MpiSession::~MpiSession() {
  if (listener_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    ends_changed_.notify_all();
    listener_.join();
  }
  if (std::uncaught_exceptions() > exceptions_at_start_) return;  // finalising would wait for peers that never come
  if (uses_mpi_) MPI_Finalize();
}

std::unique_ptr<HostCommunicator> MpiSession::world() {
  MPI_Comm comm = MPI_COMM_NULL;
  if (ranks_ > 1) check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "world", "duplicating the world");
  return std::make_unique<MpiCommunicator>(comm, "world", rank_, ranks_, piece_bytes_);
}

void MpiSession::abort(int exit_code) {
  if (uses_mpi_) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace shiftron
