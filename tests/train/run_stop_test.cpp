// Ranks agree on a stop.
#include "train/run_stop.h"

#include <gtest/gtest.h>

#include "parallel/host_communicator.h"

namespace shiftron {
namespace {

constexpr TimeLimit::Due kNothing{};

TEST(RunStop, OneAskedRankStopsAllForGood) {
  run_thread_ranks(3, [](HostCommunicator& world) {
    Log log(world.rank());
    bool asked = false;
    RunStop stop(
        world, [&] { return asked; }, log);
    EXPECT_FALSE(stop.is_wanted_anywhere());
    asked = world.rank() == 1;
    EXPECT_EQ(stop.is_wanted(kNothing), world.rank() == 1);
    EXPECT_FALSE(stop.is_stopping()) << "before all ranks have agreed";
    EXPECT_TRUE(stop.is_wanted_anywhere());
    asked = false;
    EXPECT_TRUE(stop.is_stopping());
    EXPECT_TRUE(stop.is_wanted_anywhere()) << "a stop is not taken back";
  });
}

TEST(RunStop, StopsWithTheStepThatReportedIt) {
  run_thread_ranks(1, [](HostCommunicator& world) {
    Log log;
    RunStop stop(
        world, [] { return false; }, log);
    stop.add(false);
    EXPECT_FALSE(stop.is_stopping());
    stop.add(true);
    stop.add(false);
    EXPECT_TRUE(stop.is_stopping());
  });
}

TEST(RunStop, TheFirstRanksLimitStopsAll) {
  run_thread_ranks(2, [](HostCommunicator& world) {
    Log log(world.rank());
    RunStop stop(
        world, [] { return false; }, log);
    const auto soon = TimeLimit::Clock::now() + std::chrono::seconds(60);
    if (world.rank() == 0) stop.limit = TimeLimit(soon, 30.0);
    EXPECT_FALSE(stop.is_wanted_anywhere());
    EXPECT_EQ(stop.is_wanted({.save = true}), world.rank() == 0) << "a save that is due does not fit any more";
    stop.limit.add_step(20);
    EXPECT_TRUE(stop.is_wanted_anywhere());
  });
}

}  // namespace
}  // namespace shiftron
