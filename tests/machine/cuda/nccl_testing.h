// Ranks that call the emulated NCCL themselves.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/check.h"
#include "machine/cuda/nccl.h"
#include "machine/cuda/streams.h"
#include "parallel/host_communicator.h"
#include "time_scale.h"

namespace shiftron::machine {

inline std::string new_id() {
  ncclUniqueId id{};
  CHECK(ncclGetUniqueId(&id) == ncclSuccess, "ncclGetUniqueId");
  return std::string(id.internal, sizeof(id.internal));
}

// With a communicator of all ranks, memory for 64 float32, and two streams that nobody orders.
struct RawRank {
  RawRank(const std::string& id, int rank, int ranks) : number(rank) {
    ncclUniqueId copy{};
    id.copy(copy.internal, sizeof(copy.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    CHECK(ncclCommInitRankConfig(&comm, ranks, copy, rank, &config) == ncclSuccess, "ncclCommInitRankConfig");
    for (cudaStream_t* made : {&stream, &other}) cudaStreamCreateWithPriority(made, cudaStreamNonBlocking, 0);
    cudaMalloc(reinterpret_cast<void**>(&data), 64 * sizeof(float));
    cudaMemsetAsync(data, 0, 64 * sizeof(float), stream);
  }
  ~RawRank() {
    ncclCommAbort(comm);
    cudaStreamSynchronize(stream);
    for (const cudaStream_t made : {stream, other}) cudaStreamDestroy(made);
    cudaFree(data);
    for (float* room : rooms) cudaFreeHost(room);
  }
  RawRank(const RawRank&) = delete;
  RawRank& operator=(const RawRank&) = delete;

  void all_reduce(const float* from, float* to) const {
    CHECK(ncclAllReduce(from, to, 8, ncclFloat32, ncclSum, comm, stream) == ncclSuccess, "ncclAllReduce");
  }
  void finish() const {
    const cudaError_t found = cudaStreamSynchronize(stream);
    CHECK(found == cudaSuccess, cudaGetErrorString(found));
  }

  // What `data` holds, as another stream than that of the communicator may see it.
  std::vector<float> values(size_t first, size_t count, cudaStream_t in) {
    float*& room = rooms.emplace_back();
    cudaMallocHost(reinterpret_cast<void**>(&room), count * sizeof(float));
    cudaMemcpyAsync(room, data + first, count * sizeof(float), cudaMemcpyDeviceToHost, in);
    const cudaError_t found = cudaStreamSynchronize(in);
    CHECK(found == cudaSuccess, cudaGetErrorString(found));
    return {room, room + count};
  }

  int number;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr, other = nullptr;
  float* data = nullptr;
  std::vector<float*> rooms;        // of values(); freeing one would wait for the device
  std::function<void()> barrier;  // of all ranks, on the host
};

// Ranks are threads; the first fault of one is thrown.
inline void run_raw(int ranks, Order order, double patience, const std::function<void(RawRank&)>& body) {
  restart_device({.order = order, .patience = scaled(patience)});
  set_nccl({.patience = scaled(std::max(patience, 2.0))});  // threads take their time to begin
  const std::string id = new_id();
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    RawRank rank(id, world.rank(), ranks);
    rank.barrier = [&] { world.barrier(); };
    body(rank);
  });
}

}  // namespace shiftron::machine
