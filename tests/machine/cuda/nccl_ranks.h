// A rank of communicators over the emulated NCCL, a thread or a process, and what each must do.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/queue_cuda.h"
#include "machine/cuda/nccl.h"
#include "machine/cuda/streams.h"
#include "parallel/communicator_nccl_cuda.h"
#include "parallel/stream_conformance.h"
#include "time_scale.h"

namespace shiftron {

// One rank: its control plane, a queue of the device, and a communicator of all ranks.
struct NcclRank {
  explicit NcclRank(HostCommunicator& world_of_host)
      : host(world_of_host),
        control(host.split(conformance::all_ranks(host), "control")),
        queue(detail::concatenate("rank ", host.rank())),
        world(split(conformance::all_ranks(host), "world")),
        tested(
            {.world = *world,
             .control = *control,
             .split = [this](const std::vector<int>& members, const std::string& name) { return split(members, name); },
             .level = conformance::Level::any_order,
             .queue = &queue,
             .counts = {0, 1, 3001},
             .device = DeviceKind::cuda,
             .sends_wait = true,
             .floating_maxima = false}) {}
  std::unique_ptr<Communicator> split(const std::vector<int>& members, const std::string& name) {
    // Channels are named so; other groups' messages come when both of their ranks call for them.
    return make_nccl_communicator(*host.split(members, name), name == "pp" ? NcclUse::messages : NcclUse::sums);
  }
  HostCommunicator& host;
  std::unique_ptr<HostCommunicator> control;
  CudaQueue queue;
  std::unique_ptr<Communicator> world;
  conformance::Tested tested;
};

// Of all ranks.
inline void check_nccl(NcclRank& rank) {
  const conformance::Group world = conformance::whole(rank.tested);
  conformance::check_refusals(world);
  conformance::check_operations(world);
  conformance::check_special_values(world);
  conformance::check_order(world, conformance::Reader::host);
  conformance::check_order(world, conformance::Reader::stream);
  conformance::check_meshes(rank.tested);
  conformance::check_two_at_once(rank.tested);
  conformance::check_streams(rank.tested);
  conformance::check_channels(rank.tested);
  rank.control->barrier();
}

}  // namespace shiftron
