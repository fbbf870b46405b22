// Communicators over NCCL, for CUDA tensors; only in builds with CUDA (kHasCuda).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "parallel/host_communicator.h"

namespace shiftron {

// messages: to later ranks of the group. Receives are posted early and wait on the device, so they get few of its
// blocks. The host waits for the peer at the first message between two ranks, so that one is sent when the communicator
// is made. scalars: sums of a few numbers, for which NCCL's memory is kept small.
enum class NcclUse { sums, scalars, messages };
// The most device blocks, and so channels, that such a communicator gets; unset: NCCL decides.
constexpr std::optional<int> most_blocks(NcclUse use) {
  if (use == NcclUse::messages) return 4;  // each occupies a multiprocessor while it waits
  if (use == NcclUse::scalars) return 1;
  return {};
}

// A communicator of the ranks of `control`, in their order, each with the device of the calling thread. All of them
// call it; `control` is used only during the call. NCCL chooses the order of sums. A send is done when it is received,
// and later operations wait for it. Maxima of floating types are refused: NCCL's lose a NaN. A lost peer is an
// Error(hang) when the host waits for the operation, if NCCL knows.
std::unique_ptr<Communicator> make_nccl_communicator(HostCommunicator& control, NcclUse use = NcclUse::sums);

// Advice if NCCL takes too much memory.
inline const std::string kLessOfNccl = "make NCCL use less memory (NCCL_MAX_CTAS=4, NCCL_BUFFSIZE=1048576)";

// Communicators that are made from now on repeat sums in the same order. Sets NCCL_NVLS_ENABLE=0, unless it is set,
// because NVLink's switch promises no order.
void repeat_sums();

// Calls give_up(), which gives up communicators: running operations end in all of them before NCCL, which may wait for
// the device, destroys any of them.
void give_up_together(const std::function<void()>& give_up) noexcept;

// NCCL accepts one rank per GPU, unless it believes the ranks to be on several hosts. `before` ranks of the same GPU
// precede this one. Sets NCCL_HOSTID, unless it is set, so that the second ranks of all GPUs appear to be on one host,
// the third ranks on another, and so on. Hosts talk over sockets, which is slow. Call before the first communicator.
void share_device(int before);

}  // namespace shiftron
