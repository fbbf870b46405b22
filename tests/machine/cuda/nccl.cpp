// Replaces the part of libnccl that the product uses, between threads and processes of one host; other functions do not
// link. An operation runs when it is at the head of the streams of all its ranks. Stricter than NCCL: a communicator
// has one stream; a group of calls is messages of one communicator; calls that do not match, and ranks of which none
// can continue, are a fault; if a rank gives up, so is what the others do, where NCCL would wait forever. Not
// instrumented.
#include "machine/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/sanitizer.h"
#include "machine/cuda/injection.h"
#include "machine/cuda/nccl_clique.h"
#include "machine/cuda/streams.h"
#include "time_scale.h"

namespace shiftron::machine {
namespace {

using sanitizer::Hidden;

NcclOptions options_of_environment() {
  NcclOptions options{.patience = scaled(60)};
  if (const char* seed = std::getenv("SHIFTRON_MACHINE_SEED")) options.seed = std::strtoull(seed, nullptr, 10);
  if (const char* bytes = std::getenv("SHIFTRON_MACHINE_NCCL_MEMORY")) {
    options.memory_of_connection = std::strtoull(bytes, nullptr, 10);
  }
  const char* sums = std::getenv("SHIFTRON_MACHINE_SUMS");
  if (sums == nullptr) return options;
  options.fixed_sums = sums == std::string("fixed");
  if (!options.fixed_sums && sums != std::string("random")) {
    throw_bad_input("SHIFTRON_MACHINE_SUMS is ", sums, "; it may be random or fixed");
  }
  return options;
}

NcclOptions& options() {
  static NcclOptions only = options_of_environment();
  return only;
}
std::atomic<int64_t> communicators = 0;
std::atomic<int64_t> connections = 0;
thread_local std::string last_error;

// Segments by their keys: those of unique ids until all ranks have come, others as long as a communicator has them.
struct Making {
  std::mutex lock;
  std::map<uint64_t, std::shared_ptr<Segment>> given_out;
  std::map<uint64_t, std::weak_ptr<Segment>> known;
};
Making& making() {
  static auto& only = *new Making;
  return only;
}

std::shared_ptr<Segment> segment_of(const ncclUniqueId& id) {
  SegmentName name{};
  std::memcpy(&name, id.internal, sizeof(name));
  CHECK(id.internal[sizeof(name)] == 0x5A, "NCCL's unique id");
  const std::lock_guard held(making().lock);
  std::weak_ptr<Segment>& known = making().known[name.key];
  std::shared_ptr<Segment> segment = known.lock();
  if (segment != nullptr) return segment;
  CHECK(name.process != getpid(), "NCCL's unique id is used up");
  segment = std::make_shared<Segment>(name);
  known = segment;
  return segment;
}

void all_have_come(const Segment& segment) {
  const std::lock_guard held(making().lock);
  making().given_out.erase(segment.name().key);
}

struct Group {
  int depth = 0;
  bool aborts = false;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<NcclCall> calls;
};
thread_local Group group;

}  // namespace

void set_nccl(const NcclOptions& chosen) {
  options() = chosen;
}
int64_t nccl_communicators() {
  return communicators;
}
int64_t nccl_connections() {
  return connections;
}

}  // namespace shiftron::machine

using namespace shiftron::machine;  // NOLINT: these functions belong to no namespace
using shiftron::sanitizer::Hidden;

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int channels = 0;
  std::set<std::string> connected{};                                 // what was, by name
  size_t memory = 0;                                                 // of the device
  cudaStream_t stream = nullptr;                                     // the first that it was used with
  std::shared_ptr<const bool> users = std::make_shared<bool>(true);  // every operation that is not done holds it
};

namespace {

void state_operands(const NcclCall& call, int rank, int ranks) {
  if (const size_t read = call.bytes_read(rank, ranks)) shiftron::sanitizer::state_read(call.from, read);
  if (const size_t written = call.bytes_written(ranks)) shiftron::sanitizer::state_write(call.to, written);
}

int channels_of(const ncclConfig_t& config) {
  constexpr int kMost = 32;  // of a communicator that says nothing
  const char* user = std::getenv("NCCL_MAX_CTAS");
  const int most = user == nullptr ? kMost : std::atoi(user);
  return config.maxCTAs == NCCL_CONFIG_UNDEF_INT ? most : std::min(config.maxCTAs, most);
}

// What a communicator connects, with the bytes that it takes for it.
struct Connection {
  std::string name;
  size_t bytes;
};
// A ring takes rows from the rank before, a tree from the rank after as well.
Connection from_rank_before(const ncclComm& comm) {
  return {"before", static_cast<size_t>(comm.channels) * options().memory_of_connection};
}
Connection from_rank_behind(const ncclComm& comm) {
  return {"behind", from_rank_before(comm).bytes};
}
// The switch of NVLink, which serves three ranks or more: 1 MiB in each direction for each rank and of 16 channels.
Connection by_switch(const ncclComm& comm) {
  const bool there = options().memory_of_connection > 0 && comm.clique->size() > 2;
  const auto shares = static_cast<size_t>(std::min(comm.clique->size(), 8) * std::min(comm.channels, 16));
  return {"switch", there ? shares * (size_t{2} << 20) : 0};
}
Connection from_peer(const ncclComm& comm, int peer) {
  constexpr int kOfPeer = 4;
  return {"peer " + std::to_string(peer),
          static_cast<size_t>(std::min(comm.channels, kOfPeer)) * options().memory_of_connection};
}
// Where all is connected at once, room for messages over a network too.
Connection of_network(const ncclComm& comm) {
  const bool there = options().memory_of_connection > 0;
  return {"network", there ? static_cast<size_t>(comm.channels) * 16 * (size_t{512} << 10) : 0};
}

std::vector<Connection> connections_of(const ncclComm& comm, const NcclCall& call) {
  constexpr size_t kLarge = size_t{64} << 10;  // bytes that a ring sums faster than a tree
  if (call.is_message()) return {from_peer(comm, call.peer)};
  if (call.kind == NcclKind::all_reduce && call.bytes() < kLarge)
    return {from_rank_before(comm), from_rank_behind(comm)};
  if (call.kind == NcclKind::broadcast) return {from_rank_before(comm)};
  return {from_rank_before(comm), by_switch(comm)};
}

bool connect(ncclComm& comm, const std::vector<Connection>& wanted) {
  for (const Connection& connection : wanted) {
    if (!comm.connected.insert(connection.name).second) continue;
    if (!take_memory(connection.bytes)) {
      last_error = "Failed to CUDA calloc " + std::to_string(connection.bytes) + " bytes";
      return false;
    }
    comm.memory += connection.bytes;
  }
  return true;
}

ncclResult_t hand_over(ncclComm_t comm, cudaStream_t stream, std::vector<NcclCall> calls) {
  CHECK(comm->stream == nullptr || comm->stream == stream, "a communicator of NCCL in two streams");
  comm->stream = stream;
  {
    const Hidden hidden;
    for (const NcclCall& call : calls) {
      const size_t before = comm->connected.size();
      if (comm->clique->size() > 1 && !connect(*comm, connections_of(*comm, call))) return ncclUnhandledCudaError;
      connections += static_cast<int64_t>(comm->connected.size() - before);
    }
    if (!comm->clique->connect(calls, last_error)) return ncclSystemError;
  }
  std::shared_ptr<std::vector<NcclCall>> operation;
  {
    const Hidden hidden;
    operation = std::make_shared<std::vector<NcclCall>>(std::move(calls));
  }
  run_in_stream(stream, [clique = comm->clique, user = comm->users, operation] {
    for (const NcclCall& call : *operation) state_operands(call, clique->rank(), clique->size());
    const Hidden hidden;  // ranks that meet are no order between their streams
    clique->perform(*operation);
  });
  return ncclSuccess;
}

ncclResult_t start(ncclComm_t comm, cudaStream_t stream, const NcclCall& call) {
  if (const auto told = injected_on_device(CallKind::collective, name_of(call.kind), ncclUnhandledCudaError))
    return told;
  CHECK(comm != nullptr, text_of(call), " without a communicator");
  const size_t bytes = call.bytes();
  CHECK(call.reduction == ncclSum || call.reduction == ncclMax, "NCCL's reduction ", static_cast<int>(call.reduction),
        " is not emulated");
  CHECK(call.peer >= 0 && call.peer < comm->clique->size(), text_of(call), " among ", comm->clique->size());
  CHECK(!call.is_message() || call.peer != comm->clique->rank(), text_of(call), ", which is this rank");
  if (call.kind == NcclKind::all_reduce || call.kind == NcclKind::broadcast) {
    const char *from = static_cast<const char*>(call.from), *to = static_cast<const char*>(call.to);
    CHECK(from == to || from + bytes <= to || to + bytes <= from, text_of(call), " into a part of its operand");
  }
  if (group.depth == 0) return hand_over(comm, stream, {call});
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
  const auto ranks = static_cast<size_t>(comm->clique->size()), rank = static_cast<size_t>(comm->clique->rank());
  CHECK(small + bytes <= large || large + ranks * bytes <= small || small == large + rank * bytes, call,
        " of a piece that lies across parts of the whole");
}

void end(ncclComm_t comm) {
  --communicators;
  give_memory(comm->memory);
  delete comm;
}

}  // namespace

// ---- communicators --------------------------------------------------------------------------------------------------
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const auto told = injected(CallKind::collective, __func__, ncclSystemError)) return told;
  const Hidden hidden;
  const auto segment = std::make_shared<Segment>();
  const SegmentName name = segment->name();
  std::memset(id, 0x5A, sizeof(*id));
  std::memcpy(id->internal, &name, sizeof(name));
  const std::lock_guard held(making().lock);
  making().given_out[name.key] = segment;
  making().known[name.key] = segment;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const Hidden hidden;
  const ncclConfig_t expected = NCCL_CONFIG_INITIALIZER;
  CHECK(config != nullptr && config->size == expected.size && config->magic == expected.magic, "NCCL's configuration");
  CHECK(config->blocking == 1, "a communicator of NCCL that does not block is not emulated");
  CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks);
  CHECK(group.depth == 0, "a communicator is made in a group of calls");
  if (const auto told = injected_on_device(CallKind::collective, __func__, ncclUnhandledCudaError)) return told;
  const char* blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking != nullptr && blocking == std::string("0")) return ncclInProgress;
  const char* host = std::getenv("NCCL_HOSTID");
  const std::shared_ptr<Segment> segment = segment_of(id);
  auto clique = std::make_shared<Clique>(segment, rank, ranks, options());
  const Clique::Joined joined =
      clique->join(std::hash<std::string>()(host == nullptr ? "" : host), gpu_of_thread(), last_error);
  all_have_come(*segment);
  if (joined != Clique::Joined::all) {
    clique->leave();
    return joined == Clique::Joined::not_all ? ncclSystemError : ncclInvalidUsage;
  }
  if (options().refusal != nullptr) {
    clique->leave();
    last_error = options().refusal;
    return ncclSystemError;
  }
  auto made = std::make_unique<ncclComm>(ncclComm{.clique = std::move(clique), .channels = channels_of(*config)});
  const char* connects = std::getenv("NCCL_RUNTIME_CONNECT");
  const bool all_at_once = connects != nullptr && connects == std::string("0") && ranks > 1;
  if (all_at_once &&
      !connect(*made, {from_rank_before(*made), from_rank_behind(*made), by_switch(*made), of_network(*made)})) {
    made->clique->leave();
    give_memory(made->memory);
    return ncclUnhandledCudaError;
  }
  if (made->clique->spans_processes()) help_streams();
  *comm = made.release();
  ++communicators;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Hidden hidden;
  CHECK(comm->users.use_count() == 1, "ncclCommDestroy under ", comm->users.use_count() - 1, " operations");
  comm->clique->leave();
  end(comm);
  return ncclSuccess;
}

// Running operations, and those after them in the stream, end as if they were done. Destroying the communicator may
// wait for the device, and so for operations of others, which end if they are aborted in the same group.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Hidden hidden;
  comm->clique->abort();
  end(comm);
  if (group.depth > 0)
    group.aborts = true;
  else
    wait_for_device("ncclCommAbort");
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Hidden hidden;
  *error = injected(CallKind::collective, __func__, ncclRemoteError);
  if (*error == ncclSuccess && comm->clique->peer_is_lost()) *error = ncclRemoteError;
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
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "a peer is lost";
    default:
      return "an error that the emulator does not return";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  return last_error.c_str();
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
  if (ended.aborts) wait_for_device("ncclCommAbort");
  return ended.calls.empty() ? ncclSuccess : hand_over(ended.comm, ended.stream, std::move(ended.calls));
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {NcclKind::all_reduce, from, to, count, type, reduction});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const NcclCall call{NcclKind::all_gather, from, to, count, type};
  check_place(from, to, call.bytes(), comm, "ncclAllGather");
  return start(comm, stream, call);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                               ncclComm_t comm, cudaStream_t stream) {
  const NcclCall call{NcclKind::reduce_scatter, from, to, count, type, reduction};
  check_place(to, from, call.bytes(), comm, "ncclReduceScatter");
  return start(comm, stream, call);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return start(comm, stream, {NcclKind::broadcast, from, to, count, type, ncclSum, root});
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return start(comm, stream, {NcclKind::send, from, nullptr, count, type, ncclSum, peer});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {NcclKind::recv, nullptr, to, count, type, ncclSum, peer});
}
