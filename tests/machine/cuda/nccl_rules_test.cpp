// NCCL's rules, each broken once: the emulator reports it. Order of calls, counts and missing groups are in
// nccl_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "core/sanitizer.h"
#include "machine/cuda/nccl_ranks.h"
#include "machine/cuda/nccl_testing.h"

namespace shiftron {
namespace {

using machine::RawRank;
using machine::run_raw;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string fault(int ranks, const std::function<void(RawRank&)>& body, Order order = Order::late,
                  double patience = 20) {
  try {
    run_raw(ranks, order, patience, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(NcclRules, AreKept) {
  for (const Order order : kOrders) {
    EXPECT_EQ(fault(
                  3,
                  [](RawRank& rank) {
                    rank.all_reduce(rank.data, rank.data);
                    rank.finish();
                  },
                  order),
              "none");
  }
}

TEST(NcclRules, RanksHaveOneType) {
  EXPECT_THAT(fault(2,
                    [](RawRank& rank) {
                      const auto type = rank.number == 0 ? ncclFloat32 : ncclInt32;
                      ncclAllReduce(rank.data, rank.data, 8, type, ncclSum, rank.comm, rank.stream);
                      rank.finish();
                    }),
              AllOf(HasSubstr("do not fit"), HasSubstr("8 float32, sum"), HasSubstr("8 int32, sum")));
}

TEST(NcclRules, RanksHaveOneRoot) {
  EXPECT_THAT(fault(2,
                    [](RawRank& rank) {
                      ncclBroadcast(rank.data, rank.data, 8, ncclFloat32, rank.number, rank.comm, rank.stream);
                      rank.finish();
                    }),
              AllOf(HasSubstr("do not fit"), HasSubstr("root 0"), HasSubstr("root 1")));
}

TEST(NcclRules, RanksHaveOneReduction) {
  EXPECT_THAT(fault(2,
                    [](RawRank& rank) {
                      const auto reduction = rank.number == 0 ? ncclSum : ncclMax;
                      ncclAllReduce(rank.data, rank.data, 8, ncclInt32, reduction, rank.comm, rank.stream);
                      rank.finish();
                    }),
              AllOf(HasSubstr("do not fit"), HasSubstr("int32, sum"), HasSubstr("int32, maximum")));
}

// Rank 0 sends to rank 1, which receives.
void pass_on(const RawRank& rank) {
  if (rank.number == 0) ncclSend(rank.data, 8, ncclFloat32, 1, rank.comm, rank.stream);
  if (rank.number == 1) ncclRecv(rank.data, 8, ncclFloat32, 0, rank.comm, rank.stream);
  rank.finish();
}

TEST(NcclRules, TheHostsOfTwoRanksWaitForTheirFirstMessage) {
  EXPECT_EQ(fault(2, pass_on), "none");
  EXPECT_THAT(fault(
                  2,
                  [](RawRank& rank) {
                    const int other = 1 - rank.number;
                    const ncclResult_t told = ncclRecv(rank.data, 8, ncclFloat32, other, rank.comm, rank.stream);
                    CHECK(told == ncclSuccess, ncclGetLastError(rank.comm));
                    ncclSend(rank.data, 8, ncclFloat32, other, rank.comm, rank.stream);
                  },
                  Order::late, 2),
              AllOf(HasSubstr("waits in recv of 8 float32 from "), HasSubstr("for that rank's first such call")));
}

TEST(NcclRules, AMessageThatIsSentIsReceived) {
  const auto sends = [](RawRank& rank) {
    pass_on(rank);
    if (rank.number == 0) ncclSend(rank.data, 8, ncclFloat32, 1, rank.comm, rank.stream);
  };
  EXPECT_THAT(fault(
                  2,
                  [&](RawRank& rank) {
                    sends(rank);
                    if (rank.number == 0) rank.finish();
                    rank.barrier();
                  },
                  Order::late, 0.3),
              HasSubstr("no progress for"));
  EXPECT_THAT(fault(2,
                    [&](RawRank& rank) {
                      sends(rank);
                      if (rank.number == 1) rank.all_reduce(rank.data, rank.data);
                      rank.finish();
                    }),
              AllOf(HasSubstr("do not fit"), HasSubstr("is at send of 8 float32 to 1")));
}

TEST(NcclRules, AReductionInPlaceIsInItsPlace) {
  EXPECT_THAT(fault(2, [](RawRank& rank) { rank.all_reduce(rank.data, rank.data + 4); }),
              HasSubstr("all_reduce of 8 float32, sum into a part of its operand"));
  const auto scatter = [](RawRank& rank, int place) {
    ncclReduceScatter(rank.data, rank.data + 8 * place, 8, ncclFloat32, ncclSum, rank.comm, rank.stream);
    rank.finish();
  };
  EXPECT_EQ(fault(2, [&](RawRank& rank) { scatter(rank, rank.number); }), "none");
  EXPECT_THAT(fault(2, [&](RawRank& rank) { scatter(rank, 1 - rank.number); }),
              HasSubstr("ncclReduceScatter of a piece that lies across parts of the whole"));
  EXPECT_THAT(
      fault(2, [](RawRank& rank) { ncclAllGather(rank.data + 4, rank.data, 8, ncclFloat32, rank.comm, rank.stream); }),
      HasSubstr("ncclAllGather of a piece that lies across parts of the whole"));
}

TEST(NcclRules, ACommunicatorHasOneStream) {
  EXPECT_THAT(fault(2,
                    [](RawRank& rank) {
                      rank.all_reduce(rank.data, rank.data);
                      ncclAllReduce(rank.data, rank.data, 8, ncclFloat32, ncclSum, rank.comm, rank.other);
                    }),
              HasSubstr("a communicator of NCCL in two streams"));
}

TEST(NcclRules, NothingIsUnderWayWhereACommunicatorIsDestroyed) {
  EXPECT_THAT(fault(2,
                    [](RawRank& rank) {
                      if (rank.number == 0) rank.all_reduce(rank.data, rank.data);
                      if (rank.number == 0) ncclCommDestroy(rank.comm);
                      rank.barrier();
                    }),
              HasSubstr("ncclCommDestroy under 1 operations"));
}

TEST(NcclRules, AGroupIsOfMessages) {
  EXPECT_THAT(fault(2,
                    [](RawRank& rank) {
                      ncclGroupStart();
                      rank.all_reduce(rank.data, rank.data);
                    }),
              HasSubstr("a group of calls with all_reduce"));
}

// A result that is read before its event cannot be taken for a valid one.
TEST(NcclRules, AResultIsNotThereBeforeItsTime) {
  if (sanitizer::kThreads) GTEST_SKIP() << "would be reported";
  std::vector<float> found(16, 0);
  const auto gather = [](RawRank& rank) {
    ncclAllGather(rank.data, rank.data + 16, 8, ncclFloat32, rank.comm, rank.stream);
  };
  EXPECT_EQ(fault(
                2,
                [&](RawRank& rank) {
                  if (rank.number == 0) {
                    gather(rank);
                    found = rank.values(16, 16, rank.other);
                  }
                  rank.barrier();
                  if (rank.number == 1) gather(rank);
                  rank.finish();
                },
                Order::eager),
            "none");
  EXPECT_THAT(found, ::testing::Each(::testing::IsNan()));
}

// Rank 0's operation is under way, as that of rank 1 comes later; meanwhile `meddle` is done by rank 0.
void meddle_with_operand(RawRank& rank, const std::function<void()>& meddle) {
  if (rank.number == 0) {
    rank.all_reduce(rank.data, rank.data);
    meddle();
  }
  rank.barrier();
  if (rank.number == 1) rank.all_reduce(rank.data, rank.data);
  rank.finish();
}

TEST(NcclRules, AnOperandStaysAsItIs) {
  if (sanitizer::kThreads) GTEST_SKIP() << "would be reported";
  EXPECT_THAT(fault(
                  2,
                  [](RawRank& rank) {
                    meddle_with_operand(rank, [&] {
                      cudaMemsetAsync(rank.data, 7, 4, rank.other);
                      cudaStreamSynchronize(rank.other);
                    });
                  },
                  Order::eager),
              HasSubstr("NCCL: what rank 0 gave to all_reduce of 8 float32, sum was written before that was done"));
}

TEST(NcclRulesDeathTest, AnOperandIsNotFreed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(fault(
                   2, [](RawRank& rank) { meddle_with_operand(rank, [&] { cudaFree(rank.data); }); }, Order::eager, 2),
               sanitizer::kThreads ? "data race" : "an operation touches byte 0 of freed device memory");
}

// ---- memory --------------------------------------------------------------------------------------------------------
// Bytes that two ranks, which are threads with one device, have in use together: with communicators, after a small sum,
// and after a second one.
std::vector<size_t> memory_of_two() {
  std::vector<size_t> found;
  const auto look = [&](RawRank& rank) {
    rank.finish();
    rank.barrier();
    size_t available = 0, total = 0;
    cudaMemGetInfo(&available, &total);
    if (rank.number == 0) found.push_back(total - available);
    rank.barrier();
  };
  run_raw(2, Order::eager, 20, [&](RawRank& rank) {
    look(rank);
    for (int sum = 0; sum < 2; ++sum) {
      rank.all_reduce(rank.data, rank.data);
      look(rank);
    }
  });
  for (size_t& bytes : found) bytes -= 2 * 64 * sizeof(float);  // the ranks' own
  return found;
}

// As NCCL 2.28 does: 9.2 MiB for a connection of one channel, of which a small sum takes two.
TEST(NcclRules, MemoryIsTakenAtTheFirstSum) {
  constexpr size_t kConnection = (512 << 10) + 4'915'200 + (4 << 20);
  constexpr size_t kSum = 2 * 32 * 2 * kConnection;  // of two ranks
  EXPECT_THAT(memory_of_two(), ::testing::ElementsAre(0, kSum, kSum));
  setenv("NCCL_RUNTIME_CONNECT", "0", 1);
  constexpr size_t kAll = kSum + size_t{2} * 32 * 16 * (512 << 10);
  EXPECT_THAT(memory_of_two(), ::testing::ElementsAre(kAll, kAll, kAll));
  setenv("NCCL_RUNTIME_CONNECT", "1", 1);
  setenv("NCCL_MAX_CTAS", "2", 1);
  EXPECT_THAT(memory_of_two(), ::testing::ElementsAre(0, kSum / 16, kSum / 16));
  unsetenv("NCCL_MAX_CTAS");
  unsetenv("NCCL_RUNTIME_CONNECT");
}

}  // namespace
}  // namespace shiftron
