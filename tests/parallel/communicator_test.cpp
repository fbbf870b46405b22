// The conformance suite over threads and alone, and what happens when a thread rank fails.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <iostream>
#include <thread>

#include "parallel/communicator_traffic.h"
#include "parallel/watchdog.h"
#include "time_scale.h"

namespace shiftron {
namespace {

using conformance::Rank;
using conformance::tensor_of;

class ThreadRanks : public ::testing::TestWithParam<int> {};

TEST_P(ThreadRanks, Conform) {
  run_thread_ranks(GetParam(), [](HostCommunicator& world) { conformance::check_host(world, 1); });
}
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanks, ::testing::Range(1, 6));

TEST(Threads, ReversedGroups) {
  run_thread_ranks(5, [](HostCommunicator& world) {
    const std::unique_ptr<HostCommunicator> control = world.split(conformance::all_ranks(world), "control");
    conformance::check_groups(conformance::of_host(world, *control), 5);
  });
}

// 1,000 small reductions among 32 ranks: a spinning wait would take minutes on few cores.
TEST(Threads, ManyRanksAreQuick) {
  const auto start = std::chrono::steady_clock::now();
  run_thread_ranks(32, [](HostCommunicator& world) {
    const std::unique_ptr<HostCommunicator> control = world.split(conformance::all_ranks(world), "control");
    conformance::check_meshes(conformance::of_host(world, *control));
    Rank rank;
    for (int i = 0; i < 1000; ++i) {
      std::vector<float> value = {1};
      world.all_reduce(rank.stream, InOut(tensor_of(value)), Reduction::sum).wait(rank.stream);
      CHECK(value[0] == 32.0f, "sum ", value[0]);
    }
  });
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), scaled(60));
}

TEST(Single, Conforms) {
  const std::unique_ptr<HostCommunicator> world = make_single_world();
  conformance::check_host(*world, 1);
}

TEST(Meta, RefusesTensorsWithBytes) {
  Rank rank;
  std::vector<float> values(4);
  const std::unique_ptr<HostCommunicator> world = make_meta_world(1, 3);
  EXPECT_EQ(world->rank(), 1);
  EXPECT_EQ(world->split({2, 1}, "pair")->rank(), 1);
  conformance::expect_error(
      [&] { world->all_reduce(rank.stream, InOut(tensor_of(values)), Reduction::sum).wait(rank.stream); },
      "tensor on cpu");
  EXPECT_EQ(world->gather_text("x", 1), (std::vector<std::string>{"x", "x", "x"}));
  EXPECT_TRUE(world->gather_text("x", 0).empty());
}

// Every kind of call that can wait for a peer; rank 3 never takes part.
const std::vector<std::pair<const char*, std::function<void(HostCommunicator&)>>> kWaitingCalls = {
    {"all_reduce",
     [](HostCommunicator& world) {
       Rank rank;
       std::vector<float> values(100000);
       world.all_reduce(rank.stream, InOut(tensor_of(values)), Reduction::sum).wait(rank.stream);
     }},
    {"all_gather",
     [](HostCommunicator& world) {
       Rank rank;
       std::vector<float> piece(1), whole(4);
       world.all_gather(rank.stream, tensor_of(piece), tensor_of(whole)).wait(rank.stream);
     }},
    {"reduce_scatter",
     [](HostCommunicator& world) {
       Rank rank;
       std::vector<float> piece(1), whole(4);
       world.reduce_scatter(rank.stream, tensor_of(whole), tensor_of(piece)).wait(rank.stream);
     }},
    {"all_to_all",
     [](HostCommunicator& world) {
       Rank rank;
       std::vector<float> out(4), in(4);
       world.all_to_all(rank.stream, tensor_of(out), tensor_of(in)).wait(rank.stream);
     }},
    {"broadcast",
     [](HostCommunicator& world) {
       Rank rank;
       std::vector<float> values(4);
       world.broadcast(rank.stream, InOut(tensor_of(values)), 3).wait(rank.stream);
     }},
    {"recv",
     [](HostCommunicator& world) {
       Rank rank;
       std::vector<float> values(4);
       world.recv(rank.stream, tensor_of(values), 3).wait(rank.stream);
     }},
    {"barrier", [](HostCommunicator& world) { world.barrier(); }},
    {"broadcast_text", [](HostCommunicator& world) { world.broadcast_text("text", 3); }},
    {"gather_text", [](HostCommunicator& world) { world.gather_text("text", 0); }},
    {"group",
     [](HostCommunicator& world) {
       world.split({3, 2, 1, 0}, "all")->barrier();
     }},
};

// Runs four ranks, of which three wait in `call` and one does `last`, after which it stays until they are woken, or
// returns at once; returns the errors of the three.
template <typename Last>
std::vector<std::string> told_by(const std::function<void(HostCommunicator&)>& call, const Last& last,
                                 std::string& thrown, ExitCode& code) {
  Watchdog watchdog(
      [](const Watchdog::Expiry& expiry) { std::cerr << "nobody was woken: " << expiry.section << std::endl; });
  const Watchdog::Section section = watchdog.enter("three ranks wait for the fourth", {scaled(20)});
  std::vector<std::string> told(3);
  try {
    run_thread_ranks(4, [&](HostCommunicator& world) {
      if (world.rank() == 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the others wait by now
        last(world);
        return;
      }
      try {
        call(world);
      } catch (const Error& error) {
        told[static_cast<size_t>(world.rank())] = error.what();
        EXPECT_EQ(error.code(), ExitCode::hang);
        throw;
      }
    });
  } catch (const Error& error) {
    thrown = error.what();
    code = error.code();
  }
  return told;
}

TEST(Failure, ExceptionWakesAllWaiters) {
  for (const auto& [name, call] : kWaitingCalls) {
    SCOPED_TRACE(name);
    std::string thrown;
    ExitCode code = ExitCode::done;
    const auto told = told_by(
        call, [](HostCommunicator&) { throw Error("the disk is full", ExitCode::bad_input); }, thrown, code);
    for (const std::string& text : told) {
      EXPECT_NE(text.find("rank 3 failed: the disk is full"), std::string::npos) << text;
    }
    EXPECT_EQ(thrown, "the disk is full");
    EXPECT_EQ(code, ExitCode::bad_input);
  }
}

TEST(Failure, WhatIsNoExceptionIsReportedToo) {
  std::string text;
  EXPECT_THROW(run_thread_ranks(2,
                                [&](HostCommunicator& world) {
                                  if (world.rank() == 1) throw 7;
                                  try {
                                    world.barrier();
                                  } catch (const Error& error) {
                                    text = error.what();
                                  }
                                }),
               int);
  EXPECT_NE(text.find("rank 1 failed: unknown exception"), std::string::npos) << text;
}

TEST(Failure, RankThatReturnsFailsItsWaiters) {
  for (const auto& [name, call] : kWaitingCalls) {
    SCOPED_TRACE(name);
    std::string thrown;
    ExitCode code = ExitCode::done;
    const auto told = told_by(
        call, [](HostCommunicator&) {}, thrown, code);
    for (const std::string& text : told) {
      EXPECT_NE(text.find("rank 3 failed: it ended while rank"), std::string::npos) << text;
    }
    EXPECT_EQ(code, ExitCode::hang);
  }
}

TEST(Failure, CallsAfterAFailureFailAtOnce) {
  EXPECT_THROW(run_thread_ranks(2,
                                [](HostCommunicator& world) {
                                  if (world.rank() == 1) throw_bad_input("first");
                                  conformance::expect_error([&] { world.barrier(); }, "first");
                                  conformance::expect_error([&] { world.barrier(); }, "first");
                                }),
               Error);
}

TEST(Failure, CallsThatDoNotMatchAreNamed) {
  std::string text;
  try {
    run_thread_ranks(3, [](HostCommunicator& world) {
      Rank rank;
      std::vector<float> values(world.rank() == 1 ? 5 : 4);
      world.broadcast(rank.stream, InOut(tensor_of(values)), 0).wait(rank.stream);
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("broadcast of 20 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("broadcast of 16 bytes"), std::string::npos) << text;
}

TEST(Failure, MessageOfAnotherSizeIsNamed) {
  std::string text;
  try {
    run_thread_ranks(2, [](HostCommunicator& world) {
      Rank rank;
      std::vector<float> values(world.rank() == 1 ? 5 : 4);
      if (world.rank() == 0) return world.send(rank.stream, tensor_of(values), 1).wait(rank.stream);
      world.recv(rank.stream, tensor_of(values), 0).wait(rank.stream);
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("receives 20 bytes, but rank 0 sent 16"), std::string::npos) << text;
}

// What was sent before a rank ended is still delivered.
TEST(Threads, MessagesOutliveTheirSender) {
  run_thread_ranks(2, [](HostCommunicator& world) {
    Rank rank;
    std::vector<float> values = {static_cast<float>(world.rank())};
    if (world.rank() == 0) return world.send(rank.stream, tensor_of(values), 1).wait(rank.stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    world.recv(rank.stream, tensor_of(values), 0).wait(rank.stream);
    CHECK(values[0] == 0.0f, "received ", values[0]);
  });
}

// A helper thread of each rank works on a group of its own while the main thread works on the world.
TEST(Threads, HelperThreadsHaveTheirOwnGroups) {
  run_thread_ranks(3, [](HostCommunicator& world) {
    const std::unique_ptr<HostCommunicator> group = world.split({0, 1, 2}, "helper");
    std::exception_ptr failure;
    const auto work = [](HostCommunicator& own, int64_t times) {
      Rank rank;
      for (int64_t i = 0; i < times; ++i) {
        std::vector<int64_t> values = {i + own.rank()};
        own.all_reduce(rank.stream, InOut(tensor_of(values)), Reduction::sum).wait(rank.stream);
        CHECK(values[0] == 3 * i + 3, "sum ", values[0]);
      }
    };
    std::thread helper([&] {
      try {
        work(*group, 300);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    work(world, 500);
    helper.join();
    if (failure != nullptr) std::rethrow_exception(failure);
  });
}

}  // namespace
}  // namespace shiftron
