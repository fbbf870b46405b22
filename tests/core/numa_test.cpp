// Which processors are next to a device, as files of a scratch folder say.
#include "core/numa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "scratch.h"

namespace shiftron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Numa, ListsOfProcessors) {
  EXPECT_THAT(processors_in("0-3,8,10-11\n"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(processors_in(""), IsEmpty());
  EXPECT_EQ(list_of({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(list_of({}), "");
}

TEST(Numa, ThePlaceOfADevice) {
  const Scratch root;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string folder = root / "sys/bus/pci/devices/0000:3b:00.0";
    std::filesystem::create_directories(folder);
    root.write("sys/bus/pci/devices/0000:3b:00.0/" + name, text);
  };
  EXPECT_FALSE(numa_place("0000:3B:00.0", root.path()));
  write("numa_node", "1\n");
  EXPECT_FALSE(numa_place("0000:3B:00.0", root.path()));
  write("local_cpulist", "4-7,12-15\n");
  const auto place = numa_place("0000:3B:00.0", root.path());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->node, 1);
  EXPECT_THAT(place->processors, ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
  write("numa_node", "-1\n");
  EXPECT_FALSE(numa_place("0000:3B:00.0", root.path()));
}

// Two nodes of four cores with two threads each; the launcher binds rank n to block n, and GPUs 0 and 1 are on node 1.
std::vector<PlacedRank> ranks_on_crossed_nodes() {
  const NumaPlace first{0, processors_in("0-3,8-11")}, second{1, processors_in("4-7,12-15")};
  return {{processors_in("0-1,8-9"), second},
          {processors_in("2-3,10-11"), second},
          {processors_in("4-5,12-13"), first},
          {processors_in("6-7,14-15"), first}};
}

std::string taken(const std::vector<PlacedRank>& ranks, size_t rank) {
  return list_of(processors_near_device(ranks, rank));
}

TEST(Numa, RanksTakeTheCoresOfTheirDevices) {
  const auto ranks = ranks_on_crossed_nodes();
  EXPECT_EQ(taken(ranks, 0), "4-5,12-13");
  EXPECT_EQ(taken(ranks, 1), "6-7,14-15");
  EXPECT_EQ(taken(ranks, 2), "0-1,8-9");
  EXPECT_EQ(taken(ranks, 3), "2-3,10-11");
}

// Such as a job has that was given half of a host.
TEST(Numa, OnlyWhatTheRanksHaveIsDivided) {
  auto ranks = ranks_on_crossed_nodes();
  ranks = {{{4}, ranks[2].device}, {{0}, ranks[0].device}};
  EXPECT_EQ(taken(ranks, 0), "0");
  EXPECT_EQ(taken(ranks, 1), "4");
}

TEST(Numa, RanksKeepTheirsWhereThatIsNotTold) {
  auto ranks = ranks_on_crossed_nodes();
  ranks[3].device.reset();
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(taken(ranks, rank), "");
}

TEST(Numa, RanksKeepTheirsWhereNoLauncherHasBoundThem) {
  auto ranks = ranks_on_crossed_nodes();
  for (PlacedRank& rank : ranks) rank.processors = processors_in("0-15");
  EXPECT_EQ(taken(ranks, 0), "");
}

TEST(Numa, RanksKeepTheirsWhereTheyAreRightOrTooFew) {
  auto ranks = ranks_on_crossed_nodes();
  std::swap(ranks[0].device, ranks[2].device);
  std::swap(ranks[1].device, ranks[3].device);
  EXPECT_EQ(taken(ranks, 0), "");
  ranks = ranks_on_crossed_nodes();
  for (PlacedRank& rank : ranks) rank.processors.resize(1);  // 0, 2, 4, 6: two ranks for two cores of each node
  EXPECT_NE(taken(ranks, 0), "");
  ranks[1].device = ranks[2].device;
  EXPECT_EQ(taken(ranks, 0), "");  // three ranks for two
}

}  // namespace
}  // namespace shiftron
