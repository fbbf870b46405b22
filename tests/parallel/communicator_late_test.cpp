// The conformance suite over threads whose streams have queues, in every order of the late scheduler.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

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

// A send that waits for its receiver, as an operation of a queue, ends when the receiver's rank does.
TEST(LateThreads, WhoSendsAheadIsToldThatTheReceiverEnded) {
  Machine machine({.order = Order::eager, .patience = scaled(5)});
  std::string text;
  EXPECT_THROW(run_thread_ranks(2,
                                [&](HostCommunicator& world) {
                                  const std::unique_ptr<Queue> queue = machine.make_queue("rank");
                                  if (world.rank() == 1) {
                                    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // rank 0 waits by now
                                    return;
                                  }
                                  try {
                                    conformance::Rank rank(DeviceKind::cpu, queue.get());
                                    const Tensor values = rank.put(std::vector<float>(4));
                                    world.send(rank.stream, values, 1, 1).wait(rank.stream);
                                    world.send(rank.stream, values, 1, 1).wait(rank.stream);
                                    rank.finish();
                                  } catch (const Error& error) {
                                    text = error.what();
                                    throw;
                                  }
                                }),
               Error);
  EXPECT_NE(text.find("it ended while rank 0 waited for it in send"), std::string::npos) << text;
}

}  // namespace
}  // namespace shiftron
