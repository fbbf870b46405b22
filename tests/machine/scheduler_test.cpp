// What queues of the late scheduler promise: order, turns, errors, dropping, several hosts, an end to endless waiting.
#include "machine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "core/check.h"
#include "expect_error.h"
#include "time_scale.h"

namespace shiftron {
namespace {

using ::testing::ElementsAre;

double seconds_of(const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

std::string name_of(const ::testing::TestParamInfo<Order>& tested) {
  return std::vector<std::string>{"eager", "random", "late", "uneven"}[static_cast<size_t>(tested.param)];
}

class EveryOrder : public ::testing::TestWithParam<Order> {
 protected:
  Machine machine_{{.order = GetParam(), .seed = 3, .patience = scaled(20), .keeps_log = true}};
};
INSTANTIATE_TEST_SUITE_P(Scheduler, EveryOrder, ::testing::ValuesIn(kOrders), name_of);

TEST_P(EveryOrder, OneQueueKeepsItsOrder) {
  const auto queue = machine_.make_queue("queue");
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) queue->run([&seen, i] { seen.push_back(i); });
  queue->mark()->wait();
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

// Where the host waits for a peer elsewhere.
TEST_P(EveryOrder, ReliefDoesWhatNoHostDrives) {
  const auto queue = machine_.make_queue("queue");
  std::atomic<bool> peer = false;
  std::atomic<int> seen = 0;
  const auto peer_came = [&] { return peer.load(); };
  queue->run([&] {
    while (!peer) yield_to_other_operations(peer_came);
    ++seen;
  });
  queue->run([&] { ++seen; });
  machine_.relieve();  // the host was at it just now
  EXPECT_TRUE(GetParam() != Order::late || machine_.log().empty());
  machine_.relieve();
  EXPECT_EQ(machine_.log().size(), 1u);
  EXPECT_EQ(seen, 0);
  peer = true;
  machine_.relieve();
  EXPECT_EQ(seen, 2);
  queue->mark()->wait();
}

TEST_P(EveryOrder, AQueueHasAThreadOfItsOwn) {
  const auto first = machine_.make_queue("first"), second = first->sibling("second");
  std::vector<std::thread::id> of_first(2), of_second(1);
  first->run([&] { of_first[0] = std::this_thread::get_id(); });
  first->mark()->wait();
  second->run([&] { of_second[0] = std::this_thread::get_id(); });
  second->mark()->wait();
  first->run([&] { of_first[1] = std::this_thread::get_id(); });
  first->mark()->wait();
  EXPECT_EQ(of_first[0], of_first[1]);
  EXPECT_NE(of_first[0], of_second[0]);
  EXPECT_NE(of_first[0], std::this_thread::get_id());
}

TEST_P(EveryOrder, OperationsThatWaitForEachOtherFinish) {
  const auto first = machine_.make_queue("first"), second = first->sibling("second");
  std::atomic<int> ball = 0;
  const auto play = [&ball](int mine) {
    for (int round = 0; round < 20; ++round) {
      while (ball % 2 != mine) ASSERT_TRUE(yield_to_other_operations());
      ++ball;
    }
  };
  first->run([&play] { play(1); });
  second->run([&play] { play(0); });
  first->mark()->wait();
  EXPECT_EQ(ball, 40);
  EXPECT_FALSE(yield_to_other_operations());
}

// The third queue's operation is needed, though no mark says so, and must not be starved by those that give their turn.
TEST_P(EveryOrder, WhatGivesItsTurnStarvesNobody) {
  const auto first = machine_.make_queue("first"), second = first->sibling("second"), third = first->sibling("third");
  std::atomic<bool> ready = false;
  for (Queue* queue : {first.get(), second.get()}) {
    queue->run([&ready] {
      while (!ready) yield_to_other_operations();
    });
  }
  third->run([] {});
  third->run([&ready] { ready = true; });
  first->mark()->wait();
  second->mark()->wait();
}

TEST_P(EveryOrder, AnErrorDropsWhatStandsBehindIt) {
  const auto first = machine_.make_queue("first"), second = first->sibling("second");
  int ran = 0;
  const auto before = first->mark();
  first->run([] { throw_crash("the first breaks"); });
  first->run([&ran] { ++ran; });
  const auto behind = first->mark();
  second->run([&ran] { ran += 10; });
  const auto good = second->mark();
  second->wait(behind);
  second->run([&ran] { ++ran; });
  const auto bad = second->mark();
  before->wait();
  for (int i = 0; i < 2; ++i) {
    EXPECT_ERROR(behind->wait(), ExitCode::crash, "the first breaks");
    EXPECT_ERROR(bad->wait(), ExitCode::crash, "the first breaks");
  }
  EXPECT_TRUE(bad->reached());
  good->wait();
  EXPECT_EQ(ran, 10);
  first->run([&ran] { ++ran; });
  EXPECT_ERROR(first->mark()->wait(), ExitCode::crash, "the first breaks");
  first->drop();
  first->run([&ran] { ++ran; });
  first->mark()->wait();
  EXPECT_EQ(ran, 11);
}

TEST_P(EveryOrder, DropCancelsAnOperationThatWaits) {
  const auto first = machine_.make_queue("first"), second = first->sibling("second");
  bool began = false, unwound = false, ran = false;
  const auto never = [&began, &unwound] {
    struct AtTheEnd {
      bool& unwound;
      ~AtTheEnd() { unwound = true; }
    } at_the_end{unwound};
    for (began = true; true;) yield_to_other_operations();
  };
  first->run([] {});
  const auto begun = first->mark();
  first->run(never);
  first->run([&ran] { ran = true; });
  const auto behind = first->mark();
  second->wait(behind);
  const auto other = second->mark();
  while (!begun->reached()) continue;
  for (int i = 0; i < 300; ++i) EXPECT_FALSE(behind->reached());
  first->drop();
  EXPECT_ERROR(behind->wait(), ExitCode::crash, "queue first was dropped");
  EXPECT_ERROR(other->wait(), ExitCode::crash, "queue first was dropped");
  EXPECT_TRUE(began);
  EXPECT_TRUE(unwound);
  EXPECT_FALSE(ran);
}

TEST_P(EveryOrder, MarksOutliveTheirQueueAndTheMachine) {
  std::shared_ptr<Mark> never_asked, done, dropped;
  {
    Machine machine({.order = GetParam()});
    const auto queue = machine.make_queue("queue");
    queue->run([] {});
    done = queue->mark();
    done->wait();
    queue->run([] {
      while (true) yield_to_other_operations();
    });
    dropped = queue->mark();
  }
  {
    Machine machine({.order = GetParam()});
    const auto queue = machine.make_queue("queue");
    queue->run([] {
      while (true) yield_to_other_operations();
    });
    never_asked = queue->mark();
  }
  EXPECT_TRUE(done->reached());
  done->wait();
  EXPECT_TRUE(dropped->reached());
  EXPECT_ERROR(dropped->wait(), ExitCode::crash, "queue queue was dropped");
}

// Every host sends what its right neighbour's queue waits for inside an operation, after a wait for another queue.
TEST_P(EveryOrder, HostsDriveEachOther) {
  constexpr int kHosts = 4, kRounds = 20;
  std::atomic<int> sent[kHosts] = {};
  int received[kHosts] = {};
  std::vector<std::thread> hosts;
  for (int host = 0; host < kHosts; ++host) {
    hosts.emplace_back([&, host] {
      const std::string name = std::to_string(host);
      const auto compute = machine_.make_queue("compute " + name), exchange = machine_.make_queue("exchange " + name);
      for (int round = 0; round < kRounds; ++round) {
        compute->run([&sent, host] { ++sent[host]; });
        exchange->wait(compute->mark());
        exchange->run([&, host, round] {
          while (sent[(host + 1) % kHosts] <= round) yield_to_other_operations();
          ++received[host];
        });
        compute->wait(exchange->mark());
        if (round % 3 == 0) compute->mark()->wait();
      }
      compute->mark()->wait();
      EXPECT_EQ(received[host], kRounds);
    });
  }
  for (std::thread& host : hosts) host.join();
}

TEST_P(EveryOrder, WaitingInVainEndsAndSaysWhoWaits) {
  Machine machine({.order = GetParam(), .patience = 0.05});
  const auto first = machine.make_queue("first"), second = first->sibling("second");
  first->run([] {});
  first->run([] {
    while (true) yield_to_other_operations();
  });
  second->mark();
  second->wait(first->mark());
  EXPECT_ERROR(second->mark()->wait(), ExitCode::hang,
               "a host waits for mark 1 of queue second; queue first: its operation 1 gives its turn; "
               "queue second waits for mark 0 of queue first");
}

TEST_P(EveryOrder, WhoeverAsksInALoopIsAnsweredInTheEnd) {
  const auto queue = machine_.make_queue("queue");
  int value = 0;
  queue->run([&value] { value = 1; });
  const auto mark = queue->mark();
  while (!mark->reached()) continue;
  EXPECT_EQ(value, 1);
}

TEST_P(EveryOrder, MarksKnowTheirTime) {
  const auto queue = machine_.make_queue("queue");
  const auto before = queue->mark();
  queue->run([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  const auto behind = queue->mark();
  const double waited = seconds_of([&] { behind->wait(); });
  EXPECT_GE(behind->seconds_since(*before), 0.02);
  EXPECT_LE(behind->seconds_since(*before), waited + scaled(10));
}

TEST_P(EveryOrder, OperationsMayNotHandOver) {
  const auto queue = machine_.make_queue("queue");
  queue->run([&queue] { queue->run([] {}); });
  EXPECT_ERROR(queue->mark()->wait(), ExitCode::crash, "an operation hands over to queue queue");
  queue->drop();
  const auto mark = queue->mark();
  queue->run([&mark] { mark->wait(); });
  EXPECT_ERROR(queue->mark()->wait(), ExitCode::crash, "an operation waits for mark");
}

TEST_P(EveryOrder, AThousandOperationsTakeLessThanASecond) {
  const auto first = machine_.make_queue("first"), second = first->sibling("second");
  int64_t ran = 0;
  const double seconds = seconds_of([&] {
    for (int i = 0; i < 500; ++i) {
      first->run([&ran] { ++ran; });
      second->wait(first->mark());
      second->run([&ran] { ++ran; });
      first->wait(second->mark());
    }
    first->mark()->wait();
  });
  EXPECT_EQ(ran, 1000);
  EXPECT_LT(seconds, scaled(1));
  RecordProperty("milliseconds", static_cast<int>(1000 * seconds));
}

using Entry = Machine::Entry;

// Two queues, two operations each, the second queue's after a mark of the first one's first.
std::vector<Entry> log_of(
    Order order, uint64_t seed, const std::function<void(Machine&)>& look = [](Machine&) {}) {
  Machine machine({.order = order, .seed = seed, .keeps_log = true});
  const auto a = machine.make_queue("a"), b = a->sibling("b");
  a->run([] {});
  b->wait(a->mark());
  a->run([] {});
  b->run([] {});
  b->run([] {});
  const auto last = b->mark();
  look(machine);
  last->wait();
  return machine.log();
}

TEST(Scheduler, EagerRunsAtTheCall) {
  const auto complete = [](Machine& machine) { EXPECT_EQ(machine.log().size(), 8u); };
  EXPECT_THAT(log_of(Order::eager, 0, complete),
              ElementsAre(Entry{"a", 0, true}, Entry{"a", 0, false}, Entry{"a", 1, true}, Entry{"a", 1, false},
                          Entry{"b", 0, true}, Entry{"b", 0, false}, Entry{"b", 1, true}, Entry{"b", 1, false}));
}

TEST(Scheduler, LateRunsWhatIsNeededAndNothingElse) {
  const auto empty = [](Machine& machine) { EXPECT_EQ(machine.log().size(), 0u); };
  EXPECT_THAT(log_of(Order::late, 0, empty),
              ElementsAre(Entry{"a", 0, true}, Entry{"a", 0, false}, Entry{"b", 0, true}, Entry{"b", 0, false},
                          Entry{"b", 1, true}, Entry{"b", 1, false}));
}

TEST(Scheduler, RandomAndUnevenFollowTheirSeed) {
  for (const Order order : {Order::random, Order::uneven}) {
    std::vector<std::vector<Entry>> logs;
    for (uint64_t seed = 0; seed < 64; ++seed) {
      const auto log = log_of(order, seed);
      EXPECT_EQ(log, log_of(order, seed));
      if (std::find(logs.begin(), logs.end(), log) == logs.end()) logs.push_back(log);
    }
    EXPECT_GE(logs.size(), order == Order::random ? 4u : 2u);
  }
}

TEST(Scheduler, TheLogShowsOverlap) {
  Machine machine({.order = Order::late, .keeps_log = true});
  const auto a = machine.make_queue("a"), b = a->sibling("b");
  std::atomic<bool> ready = false;
  a->run([&ready] {
    while (!ready) yield_to_other_operations();
  });
  b->run([&ready] { ready = true; });
  a->mark()->wait();
  EXPECT_THAT(machine.log(),
              ElementsAre(Entry{"a", 0, true}, Entry{"b", 0, true}, Entry{"b", 0, false}, Entry{"a", 0, false}));
}

}  // namespace
}  // namespace shiftron
