// What a plan expects of NCCL, and the first operations of groups.
#include "parallel/connect_groups.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace shiftron {
namespace {

constexpr int64_t kConnection = (int64_t{512} << 10) + 4'915'200 + (int64_t{4} << 20);
constexpr int64_t kMebibyte = int64_t{1} << 20;

TEST(NcclMemory, FollowsFromUseRanksAndOperations) {
  const NcclBuffers usual;
  EXPECT_EQ(nccl_memory(NcclUse::sums, 1, true, usual), 0);
  EXPECT_EQ(nccl_memory(NcclUse::sums, 2, false, usual), 32 * kConnection);
  EXPECT_EQ(nccl_memory(NcclUse::sums, 2, true, usual), 64 * kConnection);
  EXPECT_EQ(nccl_memory(NcclUse::sums, 8, false, usual), 32 * kConnection + 256 * kMebibyte);
  EXPECT_EQ(nccl_memory(NcclUse::sums, 64, false, usual), 32 * kConnection + 256 * kMebibyte);
  EXPECT_EQ(nccl_memory(NcclUse::sums, 8, false, {.multicast = false}), 32 * kConnection);
  EXPECT_EQ(nccl_memory(NcclUse::scalars, 4, true, usual), 2 * kConnection + 8 * kMebibyte);
  EXPECT_EQ(nccl_memory(NcclUse::messages, 2, false, usual), 4 * kConnection);
  EXPECT_EQ(nccl_memory(NcclUse::sums, 2, false, {.channels = 4, .chunk = kMebibyte}),
            4 * (kConnection - 3 * kMebibyte));
}

TEST(NcclMemory, FollowsTheUsersVariables) {
  EXPECT_EQ(NcclBuffers::of_environment(), NcclBuffers{});
  setenv("NCCL_MAX_CTAS", "4", 1);
  setenv("NCCL_BUFFSIZE", "1048576", 1);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  EXPECT_EQ(NcclBuffers::of_environment(), (NcclBuffers{.channels = 4, .chunk = kMebibyte, .multicast = false}));
  for (const char* name : {"NCCL_MAX_CTAS", "NCCL_BUFFSIZE", "NCCL_NVLS_ENABLE"}) unsetenv(name);
}

// Of the groups of a rank: those that a step uses, and its channels.
TEST(NcclMemory, IsThatOfTheGroupsThatAStepUses) {
  const auto world = make_meta_world(0, 16);
  const Groups groups = make_groups(*world, {.tp = 2, .dp = 4, .pp = 2}, 1);
  const std::map<std::string, TrafficCost> traffic = {
      {"world all_reduce", {}}, {"tp all_gather", {}}, {"dp all_reduce", {}}, {"pp send", {}}};
  EXPECT_EQ(nccl_memory(groups, traffic, {}),
            nccl_memory(NcclUse::scalars, 16, true, {}) + nccl_memory(NcclUse::sums, 2, false, {}) +
                nccl_memory(NcclUse::sums, 4, true, {}) + std::ssize(groups.channels) * 4 * kConnection);
  EXPECT_EQ(groups.channels.size(), 2u);
}

}  // namespace
}  // namespace shiftron
