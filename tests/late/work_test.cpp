// Events and works on queues: who waits for what, and that nobody else does. The late order runs an operation only when
// the host waits for it, so the scheduler's log shows what was waited for.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/event.h"
#include "core/memory.h"
#include "expect_error.h"
#include "machine/scheduler.h"
#include "parallel/host_communicator.h"
#include "time_scale.h"

namespace shiftron {
namespace {

using Entry = Machine::Entry;

class LateEvent : public ::testing::Test {
 protected:
  Machine machine_{{.order = Order::late, .patience = scaled(20), .keeps_log = true}};
  std::unique_ptr<Queue> first_queue_ = machine_.make_queue("first");
  std::unique_ptr<Queue> second_queue_ = machine_.make_queue("second");
  Ledger ledger_;
  Stream first_{.ledger = &ledger_, .queue = first_queue_.get()};
  Stream second_{.ledger = &ledger_, .queue = second_queue_.get()};
};

TEST_F(LateEvent, OrdersAStreamBehindAnother) {
  Event event;
  std::atomic<int> value = 0;  // written while it is read
  int seen = 0;
  do_in(first_, [&] { value = 1; });
  event.record(first_);
  do_in(first_, [&] { value = 2; });
  event.wait(second_);
  do_in(second_, [&] { seen = value; });
  EXPECT_TRUE(machine_.log().empty());
  Event end;
  end.record(second_);
  end.wait_on_host();
  EXPECT_EQ(seen, 1);  // the second operation of the first stream was not waited for
  EXPECT_EQ(machine_.log(),
            (std::vector<Entry>{{"first", 0, true}, {"first", 0, false}, {"second", 0, true}, {"second", 0, false}}));
  event.record(first_);
  event.wait_on_host();
  EXPECT_EQ(value, 2);
}

TEST_F(LateEvent, WaitsOnTheHostForWhatStoodBeforeItAlone) {
  Event event;
  do_in(first_, [] {});
  event.record(first_);
  do_in(first_, [] {});
  do_in(second_, [] {});
  EXPECT_TRUE(machine_.log().empty());
  for (int i = 0; i < 2; ++i) {
    event.wait_on_host();
    EXPECT_EQ(machine_.log(), (std::vector<Entry>{{"first", 0, true}, {"first", 0, false}}));
  }
}

TEST_F(LateEvent, ForgetsThePlaceBefore) {
  Event event;
  do_in(first_, [] {});
  event.record(first_);
  do_in(second_, [] {});
  event.record(second_);
  event.wait_on_host();
  EXPECT_EQ(machine_.log(), (std::vector<Entry>{{"second", 0, true}, {"second", 0, false}}));
}

TEST_F(LateEvent, NeverRecordedIsWaitedForByNobody) {
  const Event event;
  bool done = false;
  event.wait_on_host();
  event.wait(second_);
  do_in(second_, [&] { done = true; });
  EXPECT_TRUE(machine_.log().empty());
  Event end;
  end.record(second_);
  end.wait_on_host();
  EXPECT_TRUE(done);
}

TEST_F(LateEvent, HoldsUpTheHostForAStreamWithoutQueue) {
  Stream immediate{.ledger = &ledger_};
  Event event;
  int value = 0;
  do_in(first_, [&] { value = 1; });
  event.record(first_);
  event.wait(immediate);
  do_in(immediate, [&] { value *= 2; });
  EXPECT_EQ(value, 2);
  event.record(immediate);
  event.wait(first_);  // reached when it was recorded
  event.wait_on_host();
}

TEST_F(LateEvent, TellsWhatWentWrongBeforeIt) {
  Event before, event, other;
  before.record(first_);
  do_in(first_, [] { throw_crash("the operation breaks"); });
  event.record(first_);
  event.wait(second_);
  other.record(second_);
  before.wait_on_host();
  EXPECT_ERROR(event.wait_on_host(), ExitCode::crash, "the operation breaks");
  EXPECT_ERROR(other.wait_on_host(), ExitCode::crash, "the operation breaks");
}

TEST_F(LateEvent, MeasuresSecondsBetweenEventsOfOneDevice) {
  Event begin, end, on_host, later;
  begin.record(first_);
  do_in(first_, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  end.record(first_);
  end.wait_on_host();
  EXPECT_GE(end.seconds_since(begin), 0.02);
  EXPECT_LE(begin.seconds_since(end), -0.02);
  Stream immediate{.ledger = &ledger_};
  on_host.record(immediate);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  later.record(immediate);
  EXPECT_GE(later.seconds_since(on_host), 0.02);
  EXPECT_ERROR((void)end.seconds_since(on_host), ExitCode::crash, "two devices");
  EXPECT_ERROR((void)on_host.seconds_since(end), ExitCode::crash, "two devices");
}

// Two ranks on one machine, each with a stream; `body` gets what they do not share.
struct WorkRank {
  HostCommunicator& world;
  Machine& machine;
  Stream& stream;
  std::vector<float>& values;  // rank + 1
  InOut tensor() { return InOut(Tensor(values.data(), DType::float32, {1}, DeviceKind::cpu)); }
  Work sum() { return world.all_reduce(stream, tensor(), Reduction::sum); }
  void finish() {
    Event end;
    end.record(stream);
    end.wait_on_host();
  }
  // No rank has waited on the host yet, nor does one before all were here.
  void expect_nothing_ran(ControlPlane& control) {
    control.barrier();
    EXPECT_TRUE(machine.log().empty());
    control.barrier();
  }
};

template <typename Body>
void run_two_ranks(Body body) {
  Machine machine({.order = Order::late, .patience = scaled(20), .keeps_log = true});
  std::vector<std::vector<float>> values = {{1}, {2}};  // outlive whatever is under way
  run_thread_ranks(2, [&](HostCommunicator& world) {
    const std::unique_ptr<HostCommunicator> control = world.split({0, 1}, "control");
    const std::unique_ptr<Queue> queue = machine.make_queue("stream");
    Ledger ledger;
    Stream stream{.ledger = &ledger, .queue = queue.get()};
    body(WorkRank{world, machine, stream, values[static_cast<size_t>(world.rank())]}, *control);
    control->barrier();
  });
}

TEST(LateWork, WaitReturnsBeforeTheOperationBegins) {
  run_two_ranks([](WorkRank rank, ControlPlane& control) {
    float seen = 0;
    do_in(rank.stream, [&rank] { rank.values[0] *= 10; });
    rank.sum().wait(rank.stream);
    do_in(rank.stream, [&rank, &seen] { seen = rank.values[0]; });
    rank.expect_nothing_ran(control);
    rank.finish();
    EXPECT_EQ(seen, 30);
  });
}

TEST(LateWork, WaitOnHostReturnsWhenItIsDone) {
  run_two_ranks([](WorkRank rank, ControlPlane& control) {
    Work work = rank.sum();
    rank.expect_nothing_ran(control);
    work.wait_on_host();
    EXPECT_EQ(rank.values[0], 3);
    work.wait_on_host();
  });
}

TEST(LateWork, DestructorOrdersTheStreamAndDoesNotWait) {
  run_two_ranks([](WorkRank rank, ControlPlane& control) {
    float seen = 0;
    { const Work work = rank.sum(); }
    do_in(rank.stream, [&rank, &seen] { seen = rank.values[0]; });
    rank.expect_nothing_ran(control);
    rank.finish();
    EXPECT_EQ(seen, 3);
  });
}

TEST(LateWork, AssignmentOrdersTheStreamBehindTheOneBefore) {
  run_two_ranks([](WorkRank rank, ControlPlane& control) {
    float seen = 0;
    Work work = rank.sum();
    work = Work();
    do_in(rank.stream, [&rank, &seen] { seen = rank.values[0]; });
    rank.expect_nothing_ran(control);
    rank.finish();
    EXPECT_EQ(seen, 3);
  });
}

// What the operation reads, or writes, is taken back and used again before anybody waited for it.
TEST(LateWork, PinsWhatItUses) {
  for (const bool reads : {true, false}) {
    run_two_ranks([reads](WorkRank rank, ControlPlane& control) {
      Arena arena(rank.stream, "arena", {{"arena", 1024}}, "scratch");
      float outside[2] = {};
      const Tensor inside = arena.allocate(DType::float32, {reads ? 1 : 2});
      const Tensor other(outside, DType::float32, {reads ? 2 : 1}, DeviceKind::cpu);
      const Tensor piece = reads ? inside : other, whole = reads ? other : inside;
      do_in(rank.stream, [piece, &rank] { *piece.data<float>() = rank.values[0]; });
      Work work = rank.world.all_gather(rank.stream, piece, whole);
      arena.release();
      float* const again = arena.allocate(DType::float32, {2}).data<float>();
      do_in(rank.stream, [again] { again[0] = again[1] = 5; });
      rank.finish();
      work.wait_on_host();
      const float* const found = reads ? outside : again;
      EXPECT_EQ(found[0], reads ? 1 : 5);
      EXPECT_EQ(found[1], reads ? 2 : 5);
      control.barrier();
    });
  }
}

// Of a group of one, too: the stream may not have come to it yet.
TEST(LateWork, OfAGroupOfOneWaitsForTheStream) {
  Machine machine({.order = Order::late, .patience = scaled(20)});
  const auto queue = machine.make_queue("stream"), other_queue = machine.make_queue("other");
  Ledger ledger;
  Stream stream{.ledger = &ledger, .queue = queue.get()}, other{.ledger = &ledger, .queue = other_queue.get()};
  const std::unique_ptr<HostCommunicator> single = make_single_world();
  float values[2] = {};
  const auto tensor = [&values](int i) { return Tensor(&values[i], DType::float32, {1}, DeviceKind::cpu); };
  do_in(stream, [&values] { values[0] = 1; });
  single->all_reduce(stream, InOut(tensor(0)), Reduction::sum).wait_on_host();
  EXPECT_EQ(values[0], 1);
  do_in(stream, [&values] { values[0] = 2; });
  single->broadcast(stream, InOut(tensor(0)), 0).wait_on_host();
  EXPECT_EQ(values[0], 2);
  do_in(stream, [&values] { values[0] = 3; });
  single->all_gather(stream, tensor(0), tensor(1)).wait(other);
  float seen = 0;
  do_in(other, [&] { seen = values[1]; });
  Event end;
  end.record(other);
  end.wait_on_host();
  EXPECT_EQ(seen, 3);
}

// Rank 0 receives what rank 1 never sends.
TEST(LateWork, IsGivenUpWhileAnExceptionUnwinds) {
  Machine machine({.order = Order::late, .patience = scaled(5), .keeps_log = true});
  std::vector<float> values(1);
  run_thread_ranks(2, [&](HostCommunicator& world) {
    const std::unique_ptr<HostCommunicator> control = world.split({0, 1}, "control");
    if (world.rank() == 0) {
      const std::unique_ptr<HostCommunicator> group = world.split({0, 1}, "group");
      const std::unique_ptr<Queue> queue = machine.make_queue("stream");
      Ledger ledger;
      Stream stream{.ledger = &ledger, .queue = queue.get()};
      try {
        const Work work = group->recv(stream, Tensor(values.data(), DType::float32, {1}, DeviceKind::cpu), 1);
        throw std::runtime_error("unwinds");
      } catch (const std::runtime_error&) {
      }
      bool done = false;
      do_in(stream, [&done] { done = true; });
      Event end;
      end.record(stream);
      end.wait_on_host();
      EXPECT_TRUE(done);
      EXPECT_EQ(machine.log(), (std::vector<Entry>{{"stream", 0, true}, {"stream", 0, false}}));
    }
    control->barrier();
  });
}

// A receive that has begun unwinds when its communicator goes.
TEST(LateWork, IsDroppedWithItsCommunicator) {
  Machine machine({.order = Order::eager, .patience = scaled(20)});
  std::vector<float> values(1);
  run_thread_ranks(2, [&](HostCommunicator& world) {
    const std::unique_ptr<HostCommunicator> control = world.split({0, 1}, "control");
    if (world.rank() == 0) {
      const std::unique_ptr<Queue> queue = machine.make_queue("stream");
      Ledger ledger;
      Stream stream{.ledger = &ledger, .queue = queue.get()};
      std::unique_ptr<HostCommunicator> group = world.split({0, 1}, "group");
      Work work = group->recv(stream, Tensor(values.data(), DType::float32, {1}, DeviceKind::cpu), 1);
      group.reset();
      EXPECT_ERROR(work.wait_on_host(), ExitCode::crash, "queue group, rank 0 was dropped");
    }
    control->barrier();
  });
}

}  // namespace
}  // namespace shiftron
