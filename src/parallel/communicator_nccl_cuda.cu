// One NCCL communicator and one stream for each group. The stream waits for the caller's stream through an event, and
// a wait for the operation uses another event.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "core/call_cuda.h"
#include "core/environment.h"
#include "core/event.h"
#include "core/host.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/queue_cuda.h"
#include "core/sanitizer.h"
#include "parallel/communicator_nccl_cuda.h"
#include "parallel/end_of_stream.h"

namespace shiftron {
namespace {

using cuda::check_call;

ncclDataType_t type_of(DType dtype, const std::string& group) {
  switch (dtype) {
    case DType::float64:
      return ncclFloat64;
    case DType::float32:
      return ncclFloat32;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::int64:
      return ncclInt64;
    case DType::int32:
      return ncclInt32;
    case DType::uint8:
      return ncclUint8;
    case DType::uint16:
      break;
  }
  throw_crash(group, ": NCCL cannot reduce ", name_of(dtype));
}

bool is_floating(DType dtype) {
  return dtype == DType::float64 || dtype == DType::float32 || dtype == DType::bfloat16;
}

// NCCL's messages about faults that the user can fix, and how to fix them.
struct Advice {
  const char* said;
  std::string next;
};
const std::string kLessMemory =
    "; the plan reserves an estimate for NCCL and device.reserve. Raise device.reserve, and the run reports before it "
    "starts which settings need less memory; or stop other programs on this GPU, or " +
    kLessOfNccl;
const Advice kAdvice[] = {
    {"Duplicate GPU",
     "; NCCL allows one rank per GPU: start at most as many ranks on a host as it has visible GPUs or, to try a layout "
     "on fewer GPUs, give every rank its own NCCL_HOSTID, which is slow"},
    {"out of memory", kLessMemory},
    {"Failed to CUDA", kLessMemory},  // calloc, malloc
    {"No space left on device",
     "; NCCL uses shared memory in /dev/shm: check df /dev/shm, and make it larger (docker run --shm-size=8g)"},
};

// Advice if the user has NCCL connect everything when a communicator is made, otherwise "".
std::string less_at_once() {
  const char* const connects = std::getenv("NCCL_RUNTIME_CONNECT");
  if (connects == nullptr || connects != std::string("0")) return "";
  return "; unset NCCL_RUNTIME_CONNECT: with 0, NCCL also allocates memory for connections that no step uses";
}

// NCCL's communicator. Running operations use it too, and another thread through find_lost_peer().
class Handle {
 public:
  void require_known_nccl() const {
    constexpr int kOldest = NCCL_VERSION(2, 28, 0);
    static_assert(NCCL_VERSION_CODE >= kOldest, "NCCL 2.28 or later is needed: see docs/gpu.md");
    int version = 0;
    check(ncclGetVersion(&version), "ncclGetVersion");
    if (version >= kOldest) return;
    throw_bad_input("NCCL ", version / 10000, ".", version % 10000 / 100, ".", version % 100,
                    " is loaded, but 2.28 or later is needed; check which libnccl.so.2 comes first in LD_LIBRARY_PATH");
  }
  // The environment overrides the configuration of a communicator here.
  static void require_calls_that_block() {
    constexpr const char* kName = "NCCL_COMM_BLOCKING";
    const std::string said = set_environment_default(kName, "1");
    if (said.empty() || std::strtoll(said.c_str(), nullptr, 0) != 0) return;  // as NCCL reads it
    throw_bad_input(kName, " is ", said, ": NCCL's calls would return before they finish; unset it");
  }
  Handle(HostCommunicator& control, NcclUse use)
      : name_(detail::concatenate(control.name(), ", rank ", control.rank(), " of ", control.size())) {
    require_calls_that_block();
    require_known_nccl();
    ncclUniqueId id{};
    if (control.rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const std::string text = control.broadcast_text(std::string(id.internal, sizeof(id.internal)), 0);
    CHECK(text.size() == sizeof(id.internal), name_, ": NCCL's unique id has ", text.size(), " bytes");
    std::memcpy(id.internal, text.data(), sizeof(id.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;  // otherwise every call would start a thread
    if (const std::optional<int> blocks = most_blocks(use)) config.maxCTAs = *blocks;
    if (use == NcclUse::scalars) config.nvlsCTAs = 1;
    check(ncclCommInitRankConfig(&comm_, control.size(), id, control.rank(), &config), "ncclCommInitRankConfig");
  }
  ~Handle() { abort(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  ncclComm_t comm() const {
    CHECK(comm_ != nullptr, name_, ": NCCL's communicator was aborted");
    return comm_;
  }
  void check(ncclResult_t result, const char* call) const {
    if (result != ncclSuccess) fail(result, call, ncclGetLastError(comm_));
  }
  // Throws if NCCL has found since the calls that a peer is lost.
  void find_lost_peer() {
    const std::lock_guard held(lock_);
    if (comm_ == nullptr) return;
    ncclResult_t found = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &found), "ncclCommGetAsyncError");
    if (found == ncclSuccess || found == ncclInProgress) return;
    lost_ = true;
    fail(found, "a running operation", ncclGetLastError(comm_));
  }
  // Ends running operations; they touch nothing once the stream is done.
  void abort() noexcept {
    if (const ncclComm_t comm = take()) ncclCommAbort(comm);
  }
  // Waits for the peers. No operation may be running.
  void destroy() {
    if (lost_) return abort();
    if (const ncclComm_t comm = take()) check(ncclCommDestroy(comm), "ncclCommDestroy");
  }

 private:
  ncclComm_t take() noexcept {
    const std::lock_guard held(lock_);
    return std::exchange(comm_, nullptr);
  }
  [[noreturn]] void fail(ncclResult_t result, const char* call, const std::string& details) const {
    const std::string text =
        detail::concatenate("group ", name_, ", ", call, ": ", ncclGetErrorString(result), " (", details, ")");
    for (const Advice& advice : kAdvice) {
      if (details.find(advice.said) == std::string::npos) continue;
      throw_bad_input(text, advice.next == kLessMemory ? less_at_once() : "", advice.next);
    }
    const bool lost = result == ncclRemoteError || result == ncclSystemError;
    throw Error(text, lost ? ExitCode::hang : ExitCode::crash);
  }
  std::string name_;
  std::atomic<bool> lost_ = false;  // a peer
  std::mutex lock_;                 // guards whether there is a communicator
  ncclComm_t comm_ = nullptr;
};

// Where the time of an operation goes: to the ledger of the stream that starts it.
struct Timing {
  Queue* starter = nullptr;  // null: it is not timed
  double TimeSplit::*kind = nullptr;
  TrafficTime* time = nullptr;  // if the stream is timed, like `begin`
  std::shared_ptr<Mark> begin = nullptr;
};

class NcclOperation final : public Pending {
 public:
  NcclOperation(std::shared_ptr<Handle> handle, Queue& queue, Timing timing)
      : handle_(std::move(handle)), timing_(std::move(timing)), end_(queue.mark(timing_.starter != nullptr)) {}
  bool done() { return end_->reached(); }
  // Only the first wait of the stream that started it can delay that stream.
  void wait(Stream& stream) override {
    if (timing_.starter != nullptr && stream.queue == timing_.starter && stream.ledger->times_communication()) {
      stream.ledger->add_awaited({.kind = timing_.kind,
                                  .time = timing_.time,
                                  .begin = timing_.begin,
                                  .asked = stream.queue->mark(true),
                                  .end = end_});
      timing_ = {};
    }
    stream.queue->wait(end_);
  }
  void wait_on_host() override {
    constexpr int kImpatient = 1000;
    for (int asked = 0; !end_->reached(); ++asked) {
      find_lost_peer();
      if (asked < kImpatient)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    end_->wait();
  }

 private:
  void find_lost_peer() {
    try {
      handle_->find_lost_peer();
    } catch (const Error&) {
      handle_->abort();  // otherwise waiting for the stream, or freeing memory, would never end
      throw;
    }
  }
  std::shared_ptr<Handle> handle_;
  Timing timing_;
  std::shared_ptr<Mark> end_;
};

// A communicator's operations that may still run, oldest first; two threads use it.
class Started {
 public:
  void add(const char* call, std::shared_ptr<NcclOperation> operation) {
    const std::lock_guard held(lock_);
    forget_done(2);
    operations_.push_back({call, ++number_, std::move(operation)});
  }
  // "ncclAllReduce, operation 7"; "" if none is running.
  std::string oldest() {
    const std::lock_guard held(lock_);
    forget_done(operations_.size());
    if (operations_.empty()) return {};
    return detail::concatenate(operations_.front().call, ", operation ", operations_.front().number);
  }

 private:
  struct Operation {
    const char* call;
    int64_t number;
    std::shared_ptr<NcclOperation> operation;
  };
  void forget_done(size_t limit) {
    const auto done = [](NcclOperation& operation) {
      const sanitizer::Hidden hidden;  // a look does not order threads
      return operation.done();
    };
    for (; limit > 0 && !operations_.empty() && done(*operations_.front().operation); --limit) operations_.pop_front();
  }
  std::mutex lock_;
  int64_t number_ = 0;
  std::deque<Operation> operations_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(HostCommunicator& control, NcclUse use)
      : RankGroup(control.name(), control.rank(), control.size()), calls_(*this, DeviceKind::cuda) {
    if (size() == 1) return;
    constexpr int kFirst = -1;  // runs before computation, which waits for it
    queue_ = std::make_unique<CudaQueue>(detail::concatenate(name(), ", rank ", rank()), kFirst);
    handle_ = std::make_shared<Handle>(control, use);
    if (use == NcclUse::messages) connect();
  }
  // While an exception unwinds, peers may be gone.
  ~NcclCommunicator() override {
    if (handle_ == nullptr) return;
    if (std::uncaught_exceptions() > 0) give_up();
    queue_->drop();
    try {
      handle_->destroy();
    } catch (const std::exception& error) {
      print_to_stderr(error.what());
    }
  }

  Work all_reduce(Stream& stream, InOut in_out, Reduction reduction) override {
    const Tensor tensor = in_out.tensor;
    const bool moves = calls_.all_reduce(stream, tensor, reduction);
    CHECK(size() == 1 || reduction == Reduction::sum || !is_floating(tensor.dtype()), name(),
          " all_reduce: NCCL's maximum of ", name_of(tensor.dtype()), " loses a NaN");
    if (!moves) return end_of(stream);
    const ncclDataType_t type = type_of(tensor.dtype(), name());
    return start(stream, {}, tensor, {"ncclAllReduce", "all_reduce"}, [&](cudaStream_t own) {
      return ncclAllReduce(tensor.raw(), tensor.raw(), static_cast<size_t>(tensor.count()), type,
                           reduction == Reduction::sum ? ncclSum : ncclMax, handle_->comm(), own);
    });
  }
  Work all_gather(Stream& stream, ConstTensor piece, Tensor whole) override {
    const bool moves = calls_.all_gather(stream, piece, whole);
    if (!moves) return copy_alone(stream, piece, whole);
    return start(stream, piece, whole, {"ncclAllGather", "all_gather"}, [&](cudaStream_t own) {
      return ncclAllGather(piece.raw(), whole.raw(), static_cast<size_t>(piece.bytes()), ncclUint8, handle_->comm(),
                           own);
    });
  }
  Work reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece) override {
    const bool moves = calls_.reduce_scatter(stream, whole, piece);
    if (!moves) return copy_alone(stream, whole, piece);
    const ncclDataType_t type = type_of(piece.dtype(), name());
    return start(stream, whole, piece, {"ncclReduceScatter", "reduce_scatter"}, [&](cudaStream_t own) {
      return ncclReduceScatter(whole.raw(), piece.raw(), static_cast<size_t>(piece.count()), type, ncclSum,
                               handle_->comm(), own);
    });
  }
  Work all_to_all(Stream& stream, ConstTensor send, Tensor receive) override {
    const bool moves = calls_.all_to_all(stream, send, receive);
    if (!moves) return copy_alone(stream, send, receive);
    return start(stream, send, receive, {"ncclSend and ncclRecv", "all_to_all"}, [&](cudaStream_t own) {
      const int64_t bytes = send.bytes() / size();
      const auto* from = static_cast<const std::byte*>(send.raw());
      auto* to = static_cast<std::byte*>(receive.raw());
      check_call(cudaMemcpyAsync(to + rank() * bytes, from + rank() * bytes, static_cast<size_t>(bytes),
                                 cudaMemcpyDeviceToDevice, own),
                 "cudaMemcpyAsync");
      ncclResult_t result = ncclGroupStart();
      for (int step = 1; step < size() && result == ncclSuccess; ++step) {
        const int peer = (rank() + step) % size();
        result = ncclSend(from + peer * bytes, static_cast<size_t>(bytes), ncclUint8, peer, handle_->comm(), own);
        if (result != ncclSuccess) break;
        result = ncclRecv(to + peer * bytes, static_cast<size_t>(bytes), ncclUint8, peer, handle_->comm(), own);
      }
      const ncclResult_t ended = ncclGroupEnd();
      return result == ncclSuccess ? ended : result;
    });
  }
  Work broadcast(Stream& stream, InOut in_out, int root) override {
    const Tensor tensor = in_out.tensor;
    if (!calls_.broadcast(stream, tensor, root)) return end_of(stream);
    return start(stream, {}, tensor, {"ncclBroadcast", "broadcast"}, [&](cudaStream_t own) {
      return ncclBroadcast(tensor.raw(), tensor.raw(), static_cast<size_t>(tensor.bytes()), ncclUint8, root,
                           handle_->comm(), own);
    });
  }
  Work send(Stream& stream, ConstTensor tensor, int to, int) override {
    if (!calls_.send(stream, tensor, to)) return end_of(stream);
    return start(stream, tensor, {}, {"ncclSend", "send"}, [&](cudaStream_t own) {
      return ncclSend(tensor.raw(), static_cast<size_t>(tensor.bytes()), ncclUint8, to, handle_->comm(), own);
    });
  }
  Work recv(Stream& stream, Tensor tensor, int from) override {
    if (!calls_.recv(stream, tensor, from)) return end_of(stream);
    return start(stream, {}, tensor, {"ncclRecv", "recv", &TimeSplit::wait}, [&](cudaStream_t own) {
      return ncclRecv(tensor.raw(), static_cast<size_t>(tensor.bytes()), ncclUint8, from, handle_->comm(), own);
    });
  }

  void give_up() noexcept override {
    if (handle_ != nullptr) handle_->abort();
  }
  void abandon() noexcept override {
    give_up();
    if (queue_ != nullptr) queue_->drop();
  }
  std::string under_way() override {
    if (handle_ == nullptr) return {};
    handle_->find_lost_peer();
    const std::string oldest = started_.oldest();
    return oldest.empty() ? oldest
                          : detail::concatenate("group ", name(), ", rank ", rank(), " of ", size(), ", ", oldest);
  }

 private:
  // Sends a byte from each rank to all later ones.
  void connect() {
    greetings_ = Buffer(DeviceKind::cuda, size(), uncounted_, "connections");
    auto* const bytes = static_cast<std::byte*>(greetings_.tensor(0, DType::uint8, {size()}).raw());
    const cudaStream_t own = queue_->context().stream;
    ncclResult_t result = ncclGroupStart();
    for (int peer = 0; peer < size() && result == ncclSuccess; ++peer) {
      if (peer < rank()) result = ncclRecv(bytes + peer, 1, ncclUint8, peer, handle_->comm(), own);
      if (peer > rank()) result = ncclSend(bytes + rank(), 1, ncclUint8, peer, handle_->comm(), own);
    }
    const ncclResult_t ended = ncclGroupEnd();
    handle_->check(result == ncclSuccess ? ended : result, "the first messages");
    NcclOperation(handle_, *queue_, {}).wait_on_host();
  }
  // Copies in a group of one; in other groups there is nothing to move.
  Work copy_alone(Stream& stream, const ConstTensor& from, const Tensor& to) const {
    if (size() == 1 && from.raw() != to.raw() && from.bytes() > 0) {
      check_call(cudaMemcpyAsync(to.raw(), from.raw(), static_cast<size_t>(from.bytes()), cudaMemcpyDeviceToDevice,
                                 stream.cuda->stream),
                 "cudaMemcpyAsync");
    }
    return end_of(stream);
  }
  // For messages: names the larger of the two, which determines the other.
  static std::string text_of(const ConstTensor& read, const ConstTensor& written) {
    const ConstTensor& tensor =
        read.defined() && (!written.defined() || read.bytes() > written.bytes()) ? read : written;
    return detail::concatenate(name_of(tensor.dtype()), " ", tensor.shape().text());
  }
  struct Operation {
    const char* of_nccl;  // the call that messages name
    const char* counted;  // its name in the ledger's traffic
    double TimeSplit::*kind = &TimeSplit::communication;
  };
  // Starts the operation on this communicator's stream, after the caller's work so far. `call` returns NCCL's result.
  template <typename Call>
  Work start(Stream& stream, const ConstTensor& read, const Tensor& written, const Operation& what, const Call& call) {
    queue_->wait(stream.queue->mark());
    Timing timing{.starter = stream.queue, .kind = what.kind};
    if (stream.timed && stream.ledger->times_communication()) {
      timing.time = &stream.ledger->traffic_time(name(), what.counted);
      timing.begin = queue_->mark(true);
    }
    const ncclResult_t result = call(queue_->context().stream);
    if (result != ncclSuccess)
      handle_->check(result, detail::concatenate(what.of_nccl, " of ", text_of(read, written)).c_str());
    const auto operation = std::make_shared<NcclOperation>(handle_, *queue_, std::move(timing));
    read.pin(operation);
    written.pin(operation);
    started_.add(what.of_nccl, operation);
    return Work(stream, operation);
  }

  CommunicatorCalls calls_;
  Ledger uncounted_;
  Buffer greetings_;                  // of connect(); outlives running operations
  std::unique_ptr<CudaQueue> queue_;  // null in a group of one
  std::shared_ptr<Handle> handle_;
  Started started_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(HostCommunicator& control, NcclUse use) {
  return std::make_unique<NcclCommunicator>(control, use);
}

void repeat_sums() {
  set_environment_default("NCCL_NVLS_ENABLE", "0");
}

// NCCL, init.cc: an abort ends operations at the call, and destroys the communicator at the end of the group.
void give_up_together(const std::function<void()>& give_up) noexcept {
  ncclGroupStart();
  give_up();
  ncclGroupEnd();
}

void share_device(int before) {
  if (before > 0) set_environment_default("NCCL_HOSTID", detail::concatenate(host_name(), "/", before));
}

}  // namespace shiftron
