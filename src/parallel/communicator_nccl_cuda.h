// Communicators over NCCL, for tensors of CUDA; only in builds that have it (kHasCuda).
#pragma once

#include <memory>

#include "parallel/host_communicator.h"

namespace shiftron {

// Of the ranks of `control`, in their order, each with the device of the thread that calls; all of them call it. It is
// used in the call alone. Sums run in an order of NCCL's choice. A send is done when it is received, and what stands
// behind it waits. Maxima of floating types are refused: NCCL's lose a NaN. A lost peer is an Error(hang) where the
// host waits for the operation, if NCCL knows.
std::unique_ptr<Communicator> make_nccl_communicator(HostCommunicator& control);

// NCCL takes one rank for a GPU, unless it believes the ranks to be on several hosts. So this rank, which `before`
// ranks of the same GPU precede, says by NCCL_HOSTID, unless that is set, that all GPUs' second ranks are on a host of
// their own, and so on. Hosts talk over sockets, which is slow. Before the first communicator.
void share_device(int before);

}  // namespace shiftron
