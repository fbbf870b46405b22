// Ranks share a GPU if it is the same one, whatever CUDA shows each of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/host.h"
#include "machine/cuda/streams.h"
#include "parallel/host_communicator.h"
#include "train/device.h"

namespace shiftron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What the ranks of a host find whom CUDA_VISIBLE_DEVICES shows these.
struct Found {
  std::vector<int> ranks_of_memory;
  std::string nccl_host{};  // of the last that sets it; "": none does
  std::string warning{};
};
Found found_by(const std::vector<std::string>& visible) {
  machine::restart_device({});
  Found found{.ranks_of_memory = std::vector<int>(visible.size())};
  run_thread_ranks(static_cast<int>(visible.size()), [&](HostCommunicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const machine::VisibleDevices of_rank(visible[rank]);
    Ledger ledger;
    Stream stream{.ledger = &ledger};
    RunConfig config;
    config.device.kind = DeviceChoice::cuda;
    const StartedDevice started = start_device(config, {.local_rank = world.rank()}, world, stream);
    found.ranks_of_memory[rank] = started.ranks_of_memory;
    if (rank == 0) found.warning = sharing_warning(started.hosts);
  });
  if (const char* host = std::getenv("NCCL_HOSTID")) found.nccl_host = host;
  return found;
}

class SharedDevices : public ::testing::Test {
 protected:
  SharedDevices() { unsetenv("NCCL_HOSTID"); }
  ~SharedDevices() override { unsetenv("NCCL_HOSTID"); }
  const std::string host_ = host_name();
};

TEST_F(SharedDevices, RanksThatAreShownOneGpuEachShareNone) {
  const Found found = found_by({"0", "1", "2", "3"});
  EXPECT_THAT(found.ranks_of_memory, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(found.nccl_host, "");
}

TEST_F(SharedDevices, RanksThatAreShownAllTakeOneEach) {
  const Found found = found_by({"0,1,2", "0,1,2", "0,1,2"});
  EXPECT_THAT(found.ranks_of_memory, ElementsAre(1, 1, 1));
  EXPECT_EQ(found.nccl_host, "");
  EXPECT_EQ(found.warning, "");
}

TEST_F(SharedDevices, MoreRanksThanGpusShareThese) {
  const Found found = found_by({"0,1", "0,1", "0,1"});
  EXPECT_THAT(found.ranks_of_memory, ElementsAre(2, 1, 2));
  EXPECT_THAT(found.warning, HasSubstr("more ranks than GPUs on " + host_ + " (3 ranks share 2 GPUs)"));
  EXPECT_EQ(found.nccl_host, host_ + "/1");
}

TEST_F(SharedDevices, OneGpuByTwoNumbersIsShared) {
  const Found found = found_by({"5", "2", "7,5,2"});  // the last one's is its third
  EXPECT_THAT(found.ranks_of_memory, ElementsAre(1, 2, 2));
  EXPECT_EQ(found.nccl_host, host_ + "/1");
}

TEST_F(SharedDevices, SlicesOfAGpuHaveTheirOwnMemoryAndOnePlaceForNccl) {
  const Found found = found_by({"MIG-GPU-2/1/0", "MIG-GPU-2/3/0", "MIG-GPU-4/1/0"});
  EXPECT_THAT(found.ranks_of_memory, ElementsAre(1, 1, 1));
  EXPECT_EQ(found.nccl_host, host_ + "/1");
}

TEST_F(SharedDevices, AHostThatTheUserGaveNcclStays) {
  setenv("NCCL_HOSTID", "given", 1);
  EXPECT_EQ(found_by({"0", "0"}).nccl_host, "given");
}

}  // namespace
}  // namespace shiftron
