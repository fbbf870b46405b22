// The conformance suite over threads whose streams have queues, in every order of the late scheduler.
#include <gtest/gtest.h>

#include "machine/scheduler.h"
#include "parallel/communicator_traffic.h"
#include "time_scale.h"

namespace shiftron {
namespace {

class LateThreadRanks : public ::testing::TestWithParam<std::tuple<Order, int>> {};

TEST_P(LateThreadRanks, Conform) {
  const auto [order, ranks] = GetParam();
  Machine machine({.order = order, .seed = static_cast<uint64_t>(ranks), .patience = scaled(20)});
  run_thread_ranks(ranks, [&machine](HostCommunicator& world) {
    const std::unique_ptr<Queue> queue = machine.make_queue("rank " + std::to_string(world.rank()));
    conformance::check_host_on_queues(world, *queue, 1);
  });
}
INSTANTIATE_TEST_SUITE_P(Orders, LateThreadRanks,
                         ::testing::Combine(::testing::ValuesIn(kOrders), ::testing::Range(1, 5)),
                         [](const auto& tested) {
                           return std::string(kOrderNames[static_cast<int>(std::get<0>(tested.param))]) +
                                  std::to_string(std::get<1>(tested.param));
                         });

}  // namespace
}  // namespace shiftron
