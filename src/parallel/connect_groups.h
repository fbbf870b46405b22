// The memory that NCCL takes of a GPU: what a plan expects of it, and the first operations, at which NCCL takes it.
#pragma once

#include <map>
#include <string>

#include "core/ledger.h"
#include "parallel/communicator_nccl_cuda.h"
#include "parallel/run.h"

namespace shiftron {

// The category of a plan's memory.
inline constexpr const char* kNcclMemory = "NCCL";

// What bounds NCCL's buffers.
struct NcclBuffers {
  int channels = 32;                    // of a communicator that limits them less: NCCL_MAX_CTAS
  int64_t chunk = int64_t{4} << 20;     // bytes of the largest buffer of a connection: NCCL_BUFFSIZE
  bool multicast = true;                // sums in the switch of NVLink: NCCL_NVLS_ENABLE
  static NcclBuffers of_environment();  // as the user has set these variables
  bool operator==(const NcclBuffers&) const = default;
};

// Bytes that NCCL is expected to take for a communicator of `ranks` ranks whose connections are made at the first use.
// An estimate, from the sizes of NCCL 2.28's buffers: each connection of a channel has one for each of its three
// protocols, 9.2 MiB together. A ring has one connection in each channel, a tree one more, a channel of messages one.
// From three ranks on a switch of NVLink takes 2 MiB for each of 8 ranks and 16 channels. `sums`: it sums over all
// ranks, so that NCCL may take trees.
int64_t nccl_memory(NcclUse use, int ranks, bool sums, const NcclBuffers& buffers);

// The same of all communicators of a rank, by the traffic of a step.
int64_t nccl_memory(const Groups& groups, const std::map<std::string, TrafficCost>& traffic,
                    const NcclBuffers& buffers);

// Does each operation that the traffic of a step names once in its group, from few bytes to as many as the step moves,
// or 64 MiB: NCCL connects ranks, and takes its memory, at the first operation of each kind and size, and a host waits
// there for its peers, which might wait for what it has not started yet. Every rank calls it. The groups come in one
// order on all ranks; messages are connected already. Takes up to 64 MiB of the device for as long as it runs. On a CPU
// there is nothing to do.
void connect_groups(ControlPlane& world, const Groups& groups, const std::map<std::string, TrafficCost>& traffic,
                    Stream& stream);

}  // namespace shiftron
