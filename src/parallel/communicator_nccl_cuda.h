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

}  // namespace shiftron
