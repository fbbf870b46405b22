// In place of libnccl, between threads of one process, the part of it that the product uses; what is missing does not
// link. An operation is done when the heads of the streams of all whom it concerns have met. Stricter than NCCL: one
// stream for a communicator; a group of calls is messages of one communicator; calls that do not fit each other, and
// ranks of which none can go on, are a fault; where a rank gives up, what the others do is one too, as NCCL's would go
// on for ever. Not instrumented.
#include "machine/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/queue.h"
#include "core/sanitizer.h"
#include "machine/cuda/injection.h"
#include "machine/cuda/streams.h"

namespace shiftron::machine {
namespace {

using sanitizer::Hidden;

// ---- calls ----------------------------------------------------------------------------------------------------------
enum class Kind { all_reduce, all_gather, reduce_scatter, broadcast, send, recv };
constexpr const char* kKindNames[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "recv"};

struct Call {
  Kind kind;
  const void* from;  // null in recv
  void* to;          // null in send
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;  // or root
  bool done = false;

  bool is_message() const { return kind == Kind::send || kind == Kind::recv; }
  bool fits(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && reduction == other.reduction &&
           peer == other.peer;
  }
};

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    default:
      throw_crash("NCCL's type ", static_cast<int>(type), " has no stand-in");
  }
}

std::string text_of(const Call& call) {
  const char* const names[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                               "uint64", "float16", "float32", "float64", "bfloat16"};
  std::string text = kKindNames[static_cast<int>(call.kind)];
  text += " of " + std::to_string(call.count) + " " + names[call.type];
  if (call.kind == Kind::all_reduce || call.kind == Kind::reduce_scatter) {
    text += call.reduction == ncclSum ? ", sum" : ", maximum";
  }
  if (call.kind == Kind::broadcast) text += ", root " + std::to_string(call.peer);
  if (call.is_message()) text += (call.kind == Kind::send ? " to " : " from ") + std::to_string(call.peer);
  return text;
}

// ---- sums -----------------------------------------------------------------------------------------------------------
float widen(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}
uint16_t narrow(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Of one element, in the order of `ranks`. A NaN loses a maximum, as it does in NCCL.
template <typename Sum, typename T>
Sum reduce(const std::vector<const T*>& parts, const std::vector<int>& ranks, size_t i, bool maximum, bool rounds) {
  constexpr bool kNarrow = std::is_same_v<T, uint16_t>;  // bfloat16
  const auto at = [&](int rank) {
    if constexpr (kNarrow) return widen(parts[static_cast<size_t>(rank)][i]);
    if constexpr (!kNarrow) return static_cast<Sum>(parts[static_cast<size_t>(rank)][i]);
  };
  Sum total = at(ranks[0]);
  for (size_t r = 1; r < ranks.size(); ++r) {
    const Sum next = at(ranks[r]);
    if constexpr (std::is_floating_point_v<Sum>) {
      total = maximum ? std::fmax(total, next) : total + next;
    } else {
      total = maximum ? (static_cast<T>(next) > static_cast<T>(total) ? next : total) : total + next;
    }
    if constexpr (kNarrow) {
      if (rounds) total = widen(narrow(total));
    }
  }
  return total;
}

template <typename Sum, typename T>
std::vector<char> reduce_all(const std::vector<const void*>& sources, const std::vector<int>& ranks, size_t first,
                             size_t count, bool maximum, bool rounds) {
  std::vector<const T*> parts;
  for (const void* source : sources) parts.push_back(static_cast<const T*>(source) + first);
  std::vector<char> bytes(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const Sum total = reduce<Sum>(parts, ranks, i, maximum, rounds);
    T value{};
    if constexpr (std::is_same_v<T, uint16_t>) {
      value = narrow(total);
    } else {
      value = static_cast<T>(total);
    }
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// ---- ranks that meet ------------------------------------------------------------------------------------------------
NcclOptions& options() {
  static NcclOptions only;
  return only;
}
std::atomic<int64_t> communicators = 0;

// The ranks of a communicator.
class Clique {
 public:
  explicit Clique(int size)
      : heads_(static_cast<size_t>(size)),
        aborted_(static_cast<size_t>(size)),
        joined_(static_cast<size_t>(size)),
        options_(options()),
        random_(options_.seed) {}

  // Returns when all ranks have come; false where they do not.
  bool join(int rank) {
    std::unique_lock held(lock_);
    char& here = joined_[static_cast<size_t>(rank)];
    CHECK(here == 0, "two ranks make a communicator as rank ", rank);
    here = 1;
    joining_.notify_all();
    return joining_.wait_for(held, std::chrono::duration<double>(options_.patience),
                             [this] { return std::ranges::count(joined_, 0) == 0; });
  }

  // In an operation of the rank's stream: returns when all its calls are done, or the rank's communicator was aborted.
  void perform(int rank, std::vector<Call>& calls) {
    std::vector<Call>*& head = heads_[static_cast<size_t>(rank)];
    const auto ends = [&] {
      const std::lock_guard held(lock_);
      return aborted_[static_cast<size_t>(rank)] != 0 || !fault_.empty() || all_done(calls);
    };
    if (rank != options_.lost_rank) {
      const std::lock_guard held(lock_);
      if (fault_.empty() && aborted_[static_cast<size_t>(rank)] == 0) {
        head = &calls;
        go_on(rank);
      }
    }
    try {
      while (!ends()) let_others_run(ends);
    } catch (...) {
      const std::lock_guard held(lock_);
      head = nullptr;
      throw;
    }
    const std::lock_guard held(lock_);
    head = nullptr;
    if (aborted_[static_cast<size_t>(rank)] == 0 && !all_done(calls)) throw_crash("NCCL: ", fault_);
  }

  void abort(int rank) {
    const std::lock_guard held(lock_);
    aborted_[static_cast<size_t>(rank)] = 1;
    heads_[static_cast<size_t>(rank)] = nullptr;
    if (fault_.empty() && options_.lost_rank < 0) fault_ = "rank " + std::to_string(rank) + " gave up";
  }
  // What a communicator of the rank is told of its peers.
  ncclResult_t told(int rank) {
    const std::lock_guard held(lock_);
    if (!options_.loss_is_told || rank == options_.lost_rank) return ncclSuccess;
    return options_.lost_rank >= 0 || std::ranges::count(aborted_, 1) > 0 ? ncclRemoteError : ncclSuccess;
  }
  int size() const { return static_cast<int>(heads_.size()); }

 private:
  static bool all_done(const std::vector<Call>& calls) {
    return std::ranges::all_of(calls, [](const Call& call) { return call.done; });
  }
  // That a rank's stream is at, if it is at one of all ranks.
  const Call* collective(int rank) const {
    const std::vector<Call>* head = heads_[static_cast<size_t>(rank)];
    return head != nullptr && !head->front().is_message() ? &head->front() : nullptr;
  }

  // `rank` has come to its calls.
  void go_on(int rank) {
    bool moved = false;
    for (int other = 0; other < size(); ++other) {
      find_misfit(rank, other);
      moved |= move_messages(rank, other);
      moved |= move_messages(other, rank);
    }
    if (!fault_.empty()) return;
    const bool all_came = std::ranges::count(heads_, nullptr) == 0;
    if (all_came && collective(rank) != nullptr) {
      meet();
    } else if (all_came && !moved) {
      fault_ = "no rank can go on";
      for (int other = 0; other < size(); ++other) fault_ += told_by(other);
    }
    for (std::vector<Call>*& head : heads_) {
      if (head != nullptr && all_done(*head)) head = nullptr;
    }
  }
  std::string told_by(int rank) const {
    const auto& calls = *heads_[static_cast<size_t>(rank)];
    const auto waits = std::ranges::find(calls, false, &Call::done);
    return "; rank " + std::to_string(rank) + " is at " + text_of(*waits);
  }

  // Two ranks of which neither will go on.
  void find_misfit(int rank, int other) {
    const Call *mine = collective(rank), *theirs = collective(other);
    const std::vector<Call>* head = heads_[static_cast<size_t>(other)];
    if (head == nullptr || rank == other || !fault_.empty()) return;
    const auto needs = [this](int one, int peer) {
      return std::ranges::any_of(*heads_[static_cast<size_t>(one)], [peer](const Call& call) {
        return call.is_message() && !call.done && call.peer == peer;
      });
    };
    const bool fits = mine != nullptr && theirs != nullptr ? mine->fits(*theirs)
                      : mine != nullptr                    ? !needs(other, rank)
                                                           : theirs == nullptr || !needs(rank, other);
    if (!fits) fault_ = "the calls of two ranks do not fit" + told_by(rank) + told_by(other);
  }

  // The messages that one rank's stream is at and another's too.
  bool move_messages(int from, int to) {
    std::vector<Call>*out = heads_[static_cast<size_t>(from)], *in = heads_[static_cast<size_t>(to)];
    bool moved = false;
    while (out != nullptr && in != nullptr && fault_.empty()) {
      const auto next = [](std::vector<Call>& calls, Kind kind, int peer) {
        return std::ranges::find_if(
            calls, [=](const Call& call) { return call.kind == kind && call.peer == peer && !call.done; });
      };
      const auto sent = next(*out, Kind::send, to), received = next(*in, Kind::recv, from);
      if (sent == out->end() || received == in->end()) break;
      if (sent->count != received->count || sent->type != received->type) {
        fault_ = "the message of rank " + std::to_string(from) + " is " + text_of(*sent) + ", where rank " +
                 std::to_string(to) + " is at " + text_of(*received);
        break;
      }
      std::memmove(received->to, sent->from, sent->count * bytes_of(sent->type));
      sent->done = received->done = moved = true;
    }
    return moved;
  }

  void meet() {
    const Call& call = heads_[0]->front();
    const size_t bytes = call.count * bytes_of(call.type);
    std::vector<const void*> sources;
    std::vector<char*> targets;
    for (const std::vector<Call>* head : heads_) {
      sources.push_back(head->front().from);
      targets.push_back(static_cast<char*>(head->front().to));
    }
    const auto ranks = static_cast<size_t>(size());
    if (call.kind == Kind::broadcast) {
      const void* source = sources[static_cast<size_t>(call.peer)];
      for (char* target : targets) std::memmove(target, source, bytes);
    } else if (call.kind == Kind::all_gather) {  // a piece may lie in its rank's whole
      for (size_t to = 0; to < ranks; ++to) {
        for (size_t from = 0; from < ranks; ++from) std::memmove(targets[to] + from * bytes, sources[from], bytes);
      }
    } else if (call.kind == Kind::all_reduce) {
      const std::vector<char> sum = reduced(call, sources, 0);
      for (char* target : targets) std::memcpy(target, sum.data(), bytes);
    } else {
      std::vector<std::vector<char>> pieces;
      for (size_t rank = 0; rank < ranks; ++rank) pieces.push_back(reduced(call, sources, rank * call.count));
      for (size_t rank = 0; rank < ranks; ++rank) std::memcpy(targets[rank], pieces[rank].data(), bytes);
    }
    for (std::vector<Call>* head : heads_) head->front().done = true;
  }

  std::vector<char> reduced(const Call& call, const std::vector<const void*>& sources, size_t first) {
    std::vector<int> ranks(sources.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random_);
    const auto reduce_in = [&]<typename Sum, typename T>() {
      return reduce_all<Sum, T>(sources, ranks, first, call.count, call.reduction == ncclMax,
                                options_.rounds_every_sum);
    };
    switch (call.type) {
      case ncclBfloat16:
        return reduce_in.operator()<float, uint16_t>();
      case ncclFloat32:
        return reduce_in.operator()<float, float>();
      case ncclFloat64:
        return reduce_in.operator()<double, double>();
      case ncclInt32:
        return reduce_in.operator()<uint32_t, int32_t>();
      case ncclInt64:
        return reduce_in.operator()<uint64_t, int64_t>();
      default:
        return reduce_in.operator()<uint8_t, uint8_t>();
    }
  }

  std::mutex lock_;  // of all below
  std::condition_variable joining_;
  std::vector<std::vector<Call>*> heads_;  // what each rank's stream is at; null: nothing that is not done
  std::vector<char> aborted_, joined_;
  const NcclOptions options_;
  std::mt19937_64 random_;
  std::string fault_;  // the first; all later operations fail
};

// Cliques that are being made, by the number in their unique id.
struct Making {
  std::mutex lock;
  uint64_t ids = 0;
  std::map<uint64_t, std::weak_ptr<Clique>> cliques;
};
Making& making() {
  static auto& only = *new Making;
  return only;
}

struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Call> calls;
};
thread_local Group group;

}  // namespace

void set_nccl(const NcclOptions& chosen) {
  options() = chosen;
}
int64_t nccl_communicators() {
  return communicators;
}

}  // namespace shiftron::machine

using namespace shiftron::machine;  // NOLINT: these functions belong to no namespace
using shiftron::sanitizer::Hidden;

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  cudaStream_t stream = nullptr;                                     // the first that it was used with
  std::shared_ptr<const bool> users = std::make_shared<bool>(true);  // every operation that is not done holds it
};

namespace {

void state_operands(const Call& call, size_t ranks) {
  const size_t bytes = call.count * bytes_of(call.type);
  const size_t read = call.kind == Kind::reduce_scatter ? ranks * bytes : bytes;
  const size_t written = call.kind == Kind::all_gather ? ranks * bytes : bytes;
  if (call.from != nullptr) shiftron::sanitizer::state_read(call.from, read);
  if (call.to != nullptr) shiftron::sanitizer::state_write(call.to, written);
}

void hand_over(ncclComm_t comm, cudaStream_t stream, std::vector<Call> calls) {
  CHECK(comm->stream == nullptr || comm->stream == stream, "a communicator of NCCL in two streams");
  comm->stream = stream;
  std::shared_ptr<std::vector<Call>> operation;
  {
    const Hidden hidden;
    operation = std::make_shared<std::vector<Call>>(std::move(calls));
  }
  run_in_stream(stream, [clique = comm->clique, rank = comm->rank, user = comm->users, operation] {
    for (const Call& call : *operation) state_operands(call, static_cast<size_t>(clique->size()));
    const Hidden hidden;  // ranks that meet are no order between their streams
    clique->perform(rank, *operation);
  });
}

ncclResult_t start(ncclComm_t comm, cudaStream_t stream, const Call& call) {
  if (const auto told =
          injected_on_device(CallKind::collective, kKindNames[static_cast<int>(call.kind)], ncclUnhandledCudaError))
    return told;
  CHECK(comm != nullptr, text_of(call), " without a communicator");
  bytes_of(call.type);
  CHECK(call.reduction == ncclSum || call.reduction == ncclMax, "NCCL's reduction ", static_cast<int>(call.reduction),
        " has no stand-in");
  CHECK(call.peer >= 0 && call.peer < comm->clique->size(), text_of(call), " among ", comm->clique->size());
  CHECK(!call.is_message() || call.peer != comm->rank, text_of(call), ", which is this rank");
  if (group.depth == 0) {
    hand_over(comm, stream, {call});
    return ncclSuccess;
  }
  CHECK(call.is_message(), "a group of calls with ", text_of(call));
  CHECK(group.comm == nullptr || (group.comm == comm && group.stream == stream), "a group of two communicators");
  group.comm = comm;
  group.stream = stream;
  group.calls.push_back(call);
  return ncclSuccess;
}

// Where an operand lies in the other, it must be as NCCL says.
void check_place(const void* piece, const void* whole, size_t bytes, const ncclComm* comm, const char* call) {
  const char *small = static_cast<const char*>(piece), *large = static_cast<const char*>(whole);
  const auto ranks = static_cast<size_t>(comm->clique->size());
  CHECK(small + bytes <= large || large + ranks * bytes <= small || small == large + comm->rank * bytes, call,
        " of a piece that lies across parts of the whole");
}

void end(ncclComm_t comm) {
  --communicators;
  delete comm;
}

}  // namespace

// ---- communicators --------------------------------------------------------------------------------------------------
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const auto told = injected(CallKind::collective, __func__, ncclSystemError)) return told;
  const Hidden hidden;
  const std::lock_guard held(making().lock);
  std::memset(id, 0x5A, sizeof(*id));
  const uint64_t number = ++making().ids;
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const Hidden hidden;
  const ncclConfig_t expected = NCCL_CONFIG_INITIALIZER;
  CHECK(config != nullptr && config->size == expected.size && config->magic == expected.magic, "NCCL's configuration");
  CHECK(config->blocking == 1, "a communicator of NCCL that does not block has no stand-in");
  CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks);
  CHECK(group.depth == 0, "a communicator is made in a group of calls");
  if (const auto told = injected_on_device(CallKind::collective, __func__, ncclUnhandledCudaError)) return told;
  std::shared_ptr<Clique> clique;
  {
    const std::lock_guard held(making().lock);
    uint64_t number = 0;
    std::memcpy(&number, id.internal, sizeof(number));
    CHECK(number >= 1 && number <= making().ids && id.internal[sizeof(number)] == 0x5A, "NCCL's unique id");
    std::weak_ptr<Clique>& made = making().cliques[number];
    clique = made.lock();
    if (clique == nullptr) made = clique = std::make_shared<Clique>(ranks);
  }
  CHECK(clique->size() == ranks, "a communicator of ", ranks, " ranks, and of ", clique->size());
  if (!clique->join(rank)) return ncclSystemError;
  *comm = new ncclComm{.clique = std::move(clique), .rank = rank};
  ++communicators;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Hidden hidden;
  CHECK(comm->users.use_count() == 1, "ncclCommDestroy under ", comm->users.use_count() - 1, " operations");
  end(comm);
  return ncclSuccess;
}

// What is under way, and what is behind it in the stream, ends as if it were done.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Hidden hidden;
  comm->clique->abort(comm->rank);
  end(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Hidden hidden;
  *error = injected(CallKind::collective, __func__, ncclRemoteError);
  if (*error == ncclSuccess) *error = comm->clique->told(comm->rank);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "not all ranks came";
    case ncclRemoteError:
      return "a peer is lost";
    default:
      return "an error that the stand-in does not return";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  return "none";
}

// ---- operations -----------------------------------------------------------------------------------------------------
ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  CHECK(group.depth > 0, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  Group ended;
  std::swap(ended, group);
  if (!ended.calls.empty()) hand_over(ended.comm, ended.stream, std::move(ended.calls));
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {Kind::all_reduce, from, to, count, type, reduction});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  check_place(from, to, count * bytes_of(type), comm, "ncclAllGather");
  return start(comm, stream, {Kind::all_gather, from, to, count, type});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                               ncclComm_t comm, cudaStream_t stream) {
  check_place(to, from, count * bytes_of(type), comm, "ncclReduceScatter");
  return start(comm, stream, {Kind::reduce_scatter, from, to, count, type, reduction});
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return start(comm, stream, {Kind::broadcast, from, to, count, type, ncclSum, root});
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return start(comm, stream, {Kind::send, from, nullptr, count, type, ncclSum, peer});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {Kind::recv, nullptr, to, count, type, ncclSum, peer});
}
