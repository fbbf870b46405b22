#include "kernels/thread_team.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "kernels/processors.h"

namespace shiftron {
namespace {

TEST(ThreadTeam, EveryThreadIsCalledOnceHoweverManyThereAre) {
  for (const int threads : {2, 5, 1, 3, 7, 2}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(threads));
    in_team(threads, [&](int thread, int all) {
      EXPECT_EQ(all, threads);
      EXPECT_EQ(place_in_team().thread, thread);
      EXPECT_EQ(place_in_team().threads, all);
      ++calls[static_cast<size_t>(thread)];
    });
    for (const auto& count : calls) EXPECT_EQ(count, 1) << threads;
  }
  EXPECT_FALSE(place_in_team().in_team);
}

TEST(ThreadTeam, WithinATeamOneThreadDoesAll) {
  std::atomic<int> calls = 0;
  in_team(3, [&](int thread, int) {
    in_team(2, [&](int inner, int all) {
      ++calls;
      EXPECT_EQ(inner, 0);
      EXPECT_EQ(all, 1);
      EXPECT_EQ(place_in_team().threads, 1);
      wait_for_team();  // for no other thread
    });
    EXPECT_EQ(place_in_team().thread, thread);
  });
  EXPECT_EQ(calls, 3);
}

// Every thread writes, waits, and reads what its neighbour wrote, round after round.
TEST(ThreadTeam, NoThreadPassesABarrierBeforeAllHaveReachedIt) {
  constexpr int kThreads = 4, kRounds = 500;
  std::vector<int> written(kThreads);  // not atomic: the barrier orders it
  std::atomic<int> wrong = 0;
  in_team(kThreads, [&](int thread, int) {
    for (int round = 1; round <= kRounds; ++round) {
      written[static_cast<size_t>(thread)] = round;
      wait_for_team();
      if (written[static_cast<size_t>((thread + 1) % kThreads)] != round) ++wrong;
      wait_for_team();
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadTeam, CallersHaveTeamsOfTheirOwn) {
  std::vector<std::thread> callers;
  std::atomic<int> calls = 0;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        int sum = 0;  // written by this team's threads in turn alone
        in_team(3, [&](int thread, int all) {
          for (int turn = 0; turn < all; ++turn) {
            if (turn == thread) sum += thread + 1;
            wait_for_team();
          }
        });
        calls += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(calls, 4 * 200 * (1 + 2 + 3));
}

// Helpers that spin for good would take a processor from every other program.
TEST(ThreadTeam, HelpersSleepWhereThereIsNothingToDo) {
  const auto used = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  in_team(3, [](int, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const double before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(used() - before, 0.1) << "two helpers that spin would use 0.6 s";
  int calls = 0;
  in_team(3, [&](int thread, int) {
    if (thread == 0) ++calls;
  });
  EXPECT_EQ(calls, 1) << "and they wake up";
}

// With more threads than processors, a thread that spins keeps the processor from the thread it waits for until its
// time slice ends, some milliseconds later. One that yields gives it at once. All are on one processor here, and their
// own time counts: what other programs take of it changes nothing.
TEST(ThreadTeam, ThreadsThatWaitYield) {
  constexpr int kThreads = 4, kBarriers = 400;
  double seconds = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(processors_of_process().front()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // its helpers inherit it
    start_threads(kThreads);
    const std::clock_t before = std::clock();
    in_team(kThreads, [](int, int) {
      for (int i = 0; i < kBarriers; ++i) wait_for_team();
    });
    seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  }).join();
  EXPECT_LT(seconds / kBarriers, 1e-3);
}

}  // namespace
}  // namespace shiftron
