// Communicators over the emulated NCCL: the conformance suite, ranks that disagree, ranks that are lost.
#include "machine/cuda/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/sanitizer.h"
#include "expect_error.h"
#include "machine/cuda/nccl_ranks.h"
#include "machine/cuda/streams.h"
#include "parallel/run.h"
#include "time_scale.h"

namespace shiftron {
namespace {

using machine::NcclOptions;
using machine::restart_device;
using machine::set_nccl;
using ::testing::AllOf;
using ::testing::HasSubstr;

void run_ranks(int ranks, const MachineOptions& machine, const NcclOptions& nccl,
               const std::function<void(NcclRank&)>& body) {
  restart_device(machine);
  set_nccl(nccl);
  run_thread_ranks(ranks, [&body](HostCommunicator& world) {
    NcclRank rank(world);
    body(rank);
  });
}

// What the first rank to fail reports.
std::string failure(int ranks, const NcclOptions& nccl, const std::function<void(NcclRank&)>& body,
                    Order order = Order::late, double patience = 20) {
  try {
    run_ranks(ranks, {.order = order, .patience = scaled(patience)}, nccl, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

// ---- the suite ------------------------------------------------------------------------------------------------------
class NcclRanks : public ::testing::TestWithParam<std::tuple<Order, int>> {};

TEST_P(NcclRanks, Conform) {
  const auto [order, ranks] = GetParam();
  const auto seed = static_cast<uint64_t>(ranks);
  run_ranks(ranks, {.order = order, .seed = seed, .patience = scaled(20)}, {.seed = seed},
            [](NcclRank& rank) { check_nccl(rank); });
  EXPECT_EQ(machine::nccl_communicators(), 0);
}
INSTANTIATE_TEST_SUITE_P(Orders, NcclRanks, ::testing::Combine(::testing::ValuesIn(kOrders), ::testing::Range(1, 5)),
                         [](const auto& tested) {
                           return std::string(kOrderNames[static_cast<int>(std::get<0>(tested.param))]) +
                                  std::to_string(std::get<1>(tested.param));
                         });

TEST(Nccl, GroupsInReversedOrder) {
  run_ranks(3, {.order = Order::uneven, .patience = scaled(20)}, {},
            [](NcclRank& rank) { conformance::check_groups(rank.tested, 3); });
}

// The emulator's sums are in no rank's order; otherwise the suite would not show that nothing depends on one.
TEST(Nccl, SumsAreInNoOrderThatIsKept) {
  EXPECT_THAT(failure(4, {},
                      [](NcclRank& rank) {
                        rank.tested.level = conformance::Level::rank_order;
                        conformance::check_operations(conformance::whole(rank.tested));
                      }),
              HasSubstr("instead of"));
}

// The bits of eight sums of the same numbers by three ranks, of two lengths.
std::vector<std::vector<float>> sums(const NcclOptions& nccl) {
  std::vector<std::vector<float>> found;
  run_ranks(3, {.patience = scaled(20)}, nccl, [&](NcclRank& rank) {
    conformance::Rank own(rank.tested);
    for (int i = 0; i < 8; ++i) {
      const Tensor tensor = own.put(conformance::numbers<float>(rank.world->rank(), i < 4 ? 100 : 200));
      std::vector<float> sum =
          own.read<float>(tensor, rank.world->all_reduce(own.stream, InOut(tensor), Reduction::sum));
      sum.resize(100);
      if (rank.world->rank() == 0) found.push_back(std::move(sum));
    }
  });
  return found;
}

// A run that is to be repeated to the bit may lean on the order that NCCL has for a size.
TEST(Nccl, FixedSumsHaveAnOrderForEverySize) {
  const auto found = sums({.seed = 1, .fixed_sums = true});
  EXPECT_EQ(sums({.seed = 2, .fixed_sums = true}), found);
  EXPECT_THAT(std::vector(found.begin() + 1, found.begin() + 4), ::testing::Each(found[0]));
  EXPECT_THAT(std::vector(found.begin() + 5, found.end()), ::testing::Each(found[4]));
  EXPECT_NE(found[0], found[4]);
  const auto drawn = sums({.seed = 1});
  EXPECT_THAT(std::vector(drawn.begin(), drawn.begin() + 4), ::testing::Not(::testing::Each(drawn[0])));
}

TEST(Nccl, SumsThatRoundBehindEveryRankAreNoticed) {
  EXPECT_THAT(failure(4, {.rounds_every_sum = true},
                      [](NcclRank& rank) { conformance::check_operations(conformance::whole(rank.tested)); }),
              HasSubstr("bfloat16"));
}

// What the plan counts on meta is what is counted here.
TEST(Nccl, CountsTrafficAsOnMeta) {
  run_ranks(2, {}, {}, [](NcclRank& rank) {
    const auto calls = [&](Communicator& group, conformance::Rank& own, DeviceKind device) {
      Buffer memory(device, 4096, own.ledger, "test");
      const Tensor piece = memory.tensor(0, DType::float32, {8}), whole = memory.tensor(1024, DType::float32, {16});
      group.all_reduce(own.stream, InOut(whole), Reduction::sum).wait(own.stream);
      group.all_gather(own.stream, piece, whole).wait(own.stream);
      group.reduce_scatter(own.stream, whole, piece).wait(own.stream);
      group.all_to_all(own.stream, whole, memory.tensor(2048, DType::float32, {16})).wait(own.stream);
      group.broadcast(own.stream, InOut(whole), 1).wait(own.stream);
      if (group.rank() == 0) group.send(own.stream, piece, 1).wait(own.stream);
      if (group.rank() == 1) group.recv(own.stream, piece, 0).wait(own.stream);
      if (device == DeviceKind::cuda) own.finish();
    };
    conformance::Rank real(rank.tested), planned(DeviceKind::meta);
    calls(*rank.world, real, DeviceKind::cuda);
    calls(*make_meta_world(rank.world->rank(), 2), planned, DeviceKind::meta);
    CHECK(real.ledger.traffic() == planned.ledger.traffic(), "traffic differs from that on meta");
    CHECK(real.ledger.traffic().at("world all_gather") == (TrafficCost{1, 32}), "traffic of all_gather");
  });
}

// ---- ranks that disagree --------------------------------------------------------------------------------------------
void reduce(NcclRank& rank, int64_t count) {
  conformance::Rank own(rank.tested);
  const Tensor tensor = own.put(std::vector<float>(static_cast<size_t>(count), 1.0f));
  own.await(rank.world->all_reduce(own.stream, InOut(tensor), Reduction::sum));
}

TEST(NcclFaults, RanksDisagreeOnACount) {
  for (const Order order : kOrders) {
    EXPECT_THAT(
        failure(
            3, {}, [](NcclRank& rank) { reduce(rank, rank.world->rank() == 1 ? 4 : 5); }, order),
        AllOf(HasSubstr("the calls of two ranks do not fit"), HasSubstr("rank 1 is at all_reduce of 4 float32, sum"),
              HasSubstr("is at all_reduce of 5 float32, sum")))
        << kOrderNames[static_cast<int>(order)];
  }
}

TEST(NcclFaults, OneRankHasAnotherOrder) {
  for (const Order order : kOrders) {
    const std::string found = failure(
        3, {},
        [](NcclRank& rank) {
          conformance::Rank own(rank.tested);
          const Tensor one = own.blank<float>(8), two = own.blank<float>(8);
          const bool other = rank.world->rank() == 2;
          const auto sum = [&] { rank.world->all_reduce(own.stream, InOut(one), Reduction::sum).wait(own.stream); };
          if (!other) sum();
          rank.world->broadcast(own.stream, InOut(two), 0).wait(own.stream);
          if (other) sum();
        },
        order);
    EXPECT_THAT(found, AllOf(HasSubstr("do not fit"), HasSubstr("rank 2 is at broadcast of 32 uint8, root 0")))
        << kOrderNames[static_cast<int>(order)];
  }
}

TEST(NcclFaults, EverybodySendsFirst) {
  for (const Order order : kOrders) {
    EXPECT_THAT(failure(
                    3, {},
                    [](NcclRank& rank) {
                      conformance::Rank own(rank.tested);
                      const Tensor out = own.blank<float>(8), in = own.blank<float>(8);
                      const Tensor all = own.blank<float>(3), from_all = own.blank<float>(3);
                      const int me = rank.world->rank();
                      own.await(rank.world->all_to_all(own.stream, all, from_all));  // hosts wait no more
                      rank.world->send(own.stream, out, (me + 1) % 3).wait(own.stream);
                      rank.world->recv(own.stream, in, (me + 2) % 3).wait(own.stream);
                    },
                    order),
                AllOf(HasSubstr("no rank can continue"), HasSubstr("rank 2 is at send of 32 uint8 to 0")))
        << kOrderNames[static_cast<int>(order)];
  }
}

TEST(NcclFaults, AMessageIsNotAsLongAsExpected) {
  EXPECT_THAT(failure(2, {},
                      [](NcclRank& rank) {
                        conformance::Rank own(rank.tested);
                        const Tensor tensor = own.blank<float>(rank.world->rank() == 0 ? 8 : 9);
                        if (rank.world->rank() == 0) own.await(rank.world->send(own.stream, tensor, 1));
                        if (rank.world->rank() == 1) own.await(rank.world->recv(own.stream, tensor, 0));
                      }),
              HasSubstr("the message of rank 0 is send of 32 uint8 to 1, where rank 1 is at recv of 36 uint8 from 0"));
}

// ---- ranks that are lost --------------------------------------------------------------------------------------------
TEST(NcclFaults, ARankNeverComesAndNcclKnows) {
  for (const Order order : kOrders) {
    EXPECT_THAT(failure(
                    3, {.lost_rank = 1, .loss_is_told = true},
                    [](NcclRank& rank) {
                      if (rank.world->rank() != 1) return reduce(rank, 5);
                      conformance::Rank own(rank.tested);
                      const Tensor tensor = own.blank<float>(5);
                      Work work = rank.world->all_reduce(own.stream, InOut(tensor), Reduction::sum);
                      conformance::expect_error([&] { rank.control->barrier(); }, "failed");  // as the others do
                      rank.world->abandon();
                    },
                    order),
                AllOf(HasSubstr("group world, rank "), HasSubstr(" of 3, a running operation: a peer is lost")))
        << kOrderNames[static_cast<int>(order)];
  }
  EXPECT_EQ(machine::nccl_communicators(), 0);
}

TEST(NcclFaults, ARankNeverComesAndNobodyKnows) {
  EXPECT_THAT(failure(
                  2, {.lost_rank = 1},
                  [](NcclRank& rank) {
                    conformance::Rank own(rank.tested);
                    const Tensor tensor = own.blank<float>(5);
                    rank.world->all_reduce(own.stream, InOut(tensor), Reduction::sum).wait(own.stream);
                    try {
                      own.finish();
                    } catch (const Error&) {
                      rank.world->abandon();  // before its operands go
                      throw;
                    }
                  },
                  Order::late, 0.2),
              HasSubstr("no progress for"));
}

// Asked by another thread while a rank's host waits for its own stream.
TEST(NcclFaults, WhatIsUnderWayIsNamed) {
  for (const bool told : {false, true}) {
    run_ranks(2, {.patience = scaled(20)}, {.lost_rank = 1, .loss_is_told = told}, [told](NcclRank& rank) {
      conformance::Rank own(rank.tested);
      const Tensor tensor = own.blank<float>(5);
      EXPECT_EQ(told ? "" : rank.world->under_way(), "");
      rank.world->broadcast(own.stream, InOut(tensor), 0).wait(own.stream);
      rank.world->all_reduce(own.stream, InOut(tensor), Reduction::sum).wait(own.stream);
      const auto under_way = [&] { return rank.world->under_way(); };
      std::string found;
      std::thread other([&] {
        try {
          found = under_way();
        } catch (const Error& error) {
          found = error.what();
        }
      });
      other.join();
      if (rank.world->rank() == 0) {
        EXPECT_THAT(found, HasSubstr(told ? "group world, rank 0 of 2, a running operation: a peer is lost"
                                          : "group world, rank 0 of 2, ncclBroadcast, operation 1"));
      }
      rank.control->barrier();
      rank.world->abandon();
      own.finish();
    });
  }
}

// Once it has ended its operations, it also destroys its communicator: the others would notice an abort.
TEST(NcclFaults, ARankThatEndsIsNoneThatIsLost) {
  run_ranks(2, {.patience = scaled(20)}, {.loss_is_told = true}, [](NcclRank& rank) {
    {
      conformance::Rank own(rank.tested);
      rank.world->all_reduce(own.stream, InOut(own.blank<float>(5)), Reduction::sum).wait(own.stream);
    }
    if (rank.world->rank() == 1) rank.world.reset();
    rank.control->barrier();
    if (rank.world != nullptr) {
      EXPECT_EQ(rank.world->under_way(), "");
    }
    rank.control->barrier();
  });
}

TEST(NcclFaults, ARankMakesNoCommunicator) {
  EXPECT_THAT(failure(2, {.patience = 0.1},
                      [](NcclRank& rank) {
                        if (rank.world->rank() == 0) {
                          const auto more = rank.split({0, 1}, "more");
                        } else {
                          const auto unused = rank.host.split({0, 1}, "more");
                          unused->broadcast_text("", 0);
                          rank.control->barrier();
                        }
                      }),
              HasSubstr("group more, rank 0 of 2, ncclCommInitRankConfig: not all ranks came"));
}

// What the user can fix does not count as a lost peer.
TEST(NcclFaults, WhatNcclSaysOfItsHostIsNoLostPeer) {
  const auto code_of = [](const char* refusal) {
    try {
      run_ranks(2, {}, {.refusal = refusal}, [](NcclRank&) {});
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(refusal));
      return std::pair{error.code(), std::string(error.what())};
    }
    return std::pair{ExitCode::done, std::string()};
  };
  using enum ExitCode;
  EXPECT_EQ(code_of("socketProgress: Connection closed by remote peer").first, hang);
  const auto [full, of_host] = code_of("Error while creating shared memory segment: No space left on device (28)");
  EXPECT_EQ(full, bad_input);
  EXPECT_THAT(of_host, HasSubstr("df /dev/shm"));
  for (const char* said : {"Cuda failure 2 'out of memory'", "Failed to CUDA calloc 10485760 bytes"}) {
    const auto [code, text] = code_of(said);
    EXPECT_EQ(code, bad_input);
    EXPECT_THAT(text, HasSubstr("Raise device.reserve"));
  }
}

TEST(NcclFaults, CallsThatDoNotBlockAreRefused) {
  setenv("NCCL_COMM_BLOCKING", "0", 1);
  try {
    run_ranks(2, {}, {}, [](NcclRank&) {});
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("NCCL_COMM_BLOCKING is 0"));
  }
  unsetenv("NCCL_COMM_BLOCKING");
}

// Two groups of which each waits for a rank that is lost, one after the other in the caller's stream.
TEST(NcclFaults, AllGroupsAreAbandonedTogether) {
  for (const Order order : kOrders) {
    run_ranks(2, {.order = order, .patience = scaled(20)}, {.lost_rank = 1}, [](NcclRank& rank) {
      const Groups groups = make_groups(rank.host, ParallelLayout{.dp = 2}, 1, {}, DeviceKind::cuda);
      conformance::Rank own(rank.tested);
      const Tensor tensor = own.blank<float>(5);
      groups.dp->all_reduce(own.stream, InOut(tensor), Reduction::sum).wait(own.stream);
      groups.world->all_reduce(own.stream, InOut(tensor), Reduction::sum).wait(own.stream);
      groups.abandon();
      own.finish();
      conformance::expect_error(
          [&] { groups.dp->all_reduce(own.stream, InOut(tensor), Reduction::sum).wait(own.stream); }, "was aborted");
    });
  }
}

// ---- order ----------------------------------------------------------------------------------------------------------
enum class OrderFault { none, result_used_before_its_event, operand_written_again };

// Rank 0 of what two ranks compute: the sum of ones, plus what was there when it was looked at.
float looked_at(Order order, OrderFault fault) {
  float found = 0;
  run_ranks(2, {.order = order, .patience = scaled(20)}, {}, [&](NcclRank& rank) {
    conformance::Rank own(rank.tested);
    const Tensor tensor = own.put(std::vector<float>{1});
    Work work = rank.world->all_reduce(own.stream, InOut(tensor), Reduction::sum);
    if (fault == OrderFault::none) work.wait(own.stream);
    if (fault == OrderFault::operand_written_again) own.fill(tensor, std::vector<float>{5});
    const std::vector<float> read = own.read_in_stream<float>(tensor);
    rank.control->barrier();  // otherwise a host that continues runs the other's operations
    work.wait(own.stream);
    own.finish();
    if (rank.world->rank() == 0) found = read[0];
  });
  return found;
}

TEST(NcclOrder, LateShowsAResultThatIsUsedBeforeItsEvent) {
  for (const Order order : kOrders) {
    EXPECT_EQ(looked_at(order, OrderFault::none), 2) << kOrderNames[static_cast<int>(order)];
  }
  if (sanitizer::kThreads) GTEST_SKIP() << "would be reported";
  EXPECT_EQ(looked_at(Order::late, OrderFault::result_used_before_its_event), 1);
  EXPECT_EQ(looked_at(Order::late, OrderFault::operand_written_again), 5);
}

class NcclOrderDeathTest : public ::testing::TestWithParam<OrderFault> {};

// ThreadSanitizer's exit code is 66.
TEST_P(NcclOrderDeathTest, IsReportedInEveryOrder) {
  if (!sanitizer::kThreads) GTEST_SKIP() << "for builds with ThreadSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Order order : kOrders) {
    EXPECT_EXIT((looked_at(order, GetParam()), std::exit(0)), ::testing::ExitedWithCode(66), "data race")
        << kOrderNames[static_cast<int>(order)];
  }
}
INSTANTIATE_TEST_SUITE_P(Faults, NcclOrderDeathTest,
                         ::testing::Values(OrderFault::result_used_before_its_event,
                                           OrderFault::operand_written_again));

}  // namespace
}  // namespace shiftron
