// Communicators over NCCL, for tensors of CUDA; only in builds that have it (kHasCuda).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "parallel/host_communicator.h"

namespace shiftron {

// Messages: to ranks behind the sender. Receives are posted early and wait on the device, so few of its blocks take
// part; and the host waits for a peer at the first message between two, so that is sent when the communicator is made.
// Scalars: sums of a few numbers, for which NCCL's memory is kept small.
enum class NcclUse { sums, scalars, messages };
// Of the device's blocks, and so channels, that such a communicator is given at most; unset: NCCL decides.
constexpr std::optional<int> most_blocks(NcclUse use) {
  if (use == NcclUse::messages) return 4;  // each is on a multiprocessor for as long as it waits
  if (use == NcclUse::scalars) return 1;
  return {};
}

// Of the ranks of `control`, in their order, each with the device of the thread that calls; all of them call it. It is
// used in the call alone. Sums run in an order of NCCL's choice. A send is done when it is received, and what stands
// behind it waits. Maxima of floating types are refused: NCCL's lose a NaN. A lost peer is an Error(hang) where the
// host waits for the operation, if NCCL knows.
std::unique_ptr<Communicator> make_nccl_communicator(HostCommunicator& control, NcclUse use = NcclUse::sums);

// Advice where its memory is too much.
inline const std::string kLessOfNccl = "have NCCL take less (NCCL_MAX_CTAS=4, NCCL_BUFFSIZE=1048576)";

// Of communicators that are made from now on: sums in an order that NCCL keeps, which the switch of NVLink promises for
// none.
void repeat_sums();

// give_up() gives up communicators: what is under way ends in all of them before NCCL, which may wait for the device,
// takes any of them down.
void give_up_together(const std::function<void()>& give_up) noexcept;

// NCCL takes one rank for a GPU, unless it believes the ranks to be on several hosts. So this rank, which `before`
// ranks of the same GPU precede, says by NCCL_HOSTID, unless that is set, that all GPUs' second ranks are on a host of
// their own, and so on. Hosts talk over sockets, which is slow. Before the first communicator.
void share_device(int before);

}  // namespace shiftron
