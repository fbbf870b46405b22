// The GPU memory that NCCL takes: what a plan expects, and the first operations, at which NCCL takes it.
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
  int channels = 32;                    // of a communicator, unless it limits them more: NCCL_MAX_CTAS
  int64_t chunk = int64_t{4} << 20;     // bytes of the largest buffer of a connection: NCCL_BUFFSIZE
  bool multicast = true;                // sums in NVLink's switch: NCCL_NVLS_ENABLE
  static NcclBuffers of_environment();  // as the user has set these variables
  bool operator==(const NcclBuffers&) const = default;
};

// Bytes that NCCL is expected to take for a communicator of `ranks` ranks whose connections are made at the first use.
// An estimate, from the buffer sizes of NCCL 2.28: each connection of a channel has one buffer for each of the three
// protocols, 9.2 MiB together. A ring has one connection in each channel, a tree one more, a channel of messages one.
// From three ranks on, NVLink's switch takes 2 MiB for each of up to 8 ranks and 16 channels. `sums`: the communicator
// sums over all ranks, so NCCL may use trees.
int64_t nccl_memory(NcclUse use, int ranks, bool sums, const NcclBuffers& buffers);

// The same for all communicators of a rank, from the traffic of a step.
int64_t nccl_memory(const Groups& groups, const std::map<std::string, TrafficCost>& traffic,
                    const NcclBuffers& buffers);

// Runs each operation in the traffic of a step once in its group, at sizes from few bytes up to those of the step, at
// most 64 MiB. NCCL connects ranks, and takes its memory, at the first operation of each kind and size. There the host
// waits for its peers, which might wait for something that this host has not started yet. Every rank calls it, and
// takes the groups in the same order; messages are already connected. Uses up to 64 MiB of the device while it runs.
// Does nothing on a CPU.
void connect_groups(ControlPlane& world, const Groups& groups, const std::map<std::string, TrafficCost>& traffic,
                    Stream& stream);

}  // namespace shiftron
