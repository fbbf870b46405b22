// What ranks find out about each other by a line of each.
#include "parallel/agree.h"

#include <gtest/gtest.h>

#include "parallel/host_communicator.h"

namespace shiftron {
namespace {

TEST(RanksAlike, AreCountedInTheOrderOfRanks) {
  const std::vector<std::string> lines = {"a", "b", "a", "", "a", "b", "ab"};
  const std::vector<int> counts = {3, 2, 3, 1, 3, 2, 1}, places = {0, 0, 1, 0, 2, 1, 0};
  run_thread_ranks(static_cast<int>(lines.size()), [&](HostCommunicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const RanksAlike alike = ranks_alike(world, lines[rank]);
    EXPECT_EQ(alike.count, counts[rank]) << "rank " << rank;
    EXPECT_EQ(alike.place, places[rank]) << "rank " << rank;
  });
}

}  // namespace
}  // namespace shiftron
