// Arenas of streams with queues: stale views, pins, and red zones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "core/event.h"
#include "core/memory.h"
#include "expect_error.h"
#include "kernels/kernels.h"
#include "machine/scheduler.h"
#include "red_zone.h"
#include "time_scale.h"

namespace shiftron {
namespace {

class User : public Pending {
 public:
  void start(Stream& stream) { end_.record(stream); }
  void wait(Stream& stream) override { end_.wait(stream); }
  void wait_on_host() override { end_.wait_on_host(); }

 private:
  Event end_;
};

// The late order: an operation runs only when the host waits for it, or for what comes after it.
class LateArena : public ::testing::Test {
 protected:
  LateArena() {
    finish();
    begun_ = machine_.log().size();
  }
  void finish() {
    Event end;
    end.record(stream_);
    end.wait_on_host();
  }
  // A tensor that an operation of the other queue uses.
  Tensor pinned() {
    const Tensor tensor = arena_->allocate(DType::float32, {4});
    finish();
    const auto user = std::make_shared<User>();
    do_in(other_, [] {});
    user->start(other_);
    tensor.pin(user);
    begun_ = machine_.log().size();
    return tensor;
  }
  // Of what began after pinned(), in order.
  std::vector<std::string> queues_that_ran() const {
    std::vector<std::string> queues;
    const std::vector<Machine::Entry> log = machine_.log();
    for (size_t i = begun_; i < log.size(); ++i) {
      if (log[i].begins) queues.push_back(log[i].queue);
    }
    return queues;
  }
  void expect_order_behind_the_user() {
    EXPECT_TRUE(queues_that_ran().empty()) << "the host waited";
    do_in(stream_, [] {});
    finish();
    const std::vector<std::string> queues = queues_that_ran();
    EXPECT_EQ(queues.front(), "exchange");
    EXPECT_EQ(queues.back(), "compute");
  }
  void expect_no_order() {
    do_in(stream_, [] {});
    finish();
    const std::vector<std::string> queues = queues_that_ran();
    EXPECT_EQ(std::count(queues.begin(), queues.end(), "exchange"), 0);
    EXPECT_EQ(queues.back(), "compute");
  }

  Machine machine_{{.order = Order::late, .patience = scaled(20), .keeps_log = true}};
  std::unique_ptr<Queue> queue_ = machine_.make_queue("compute"), other_queue_ = machine_.make_queue("exchange");
  Ledger ledger_;
  Stream stream_{.ledger = &ledger_, .queue = queue_.get()};
  Stream other_{.ledger = &ledger_, .queue = other_queue_.get()};
  std::unique_ptr<Arena> arena_ = std::make_unique<Arena>(stream_, "arena", MemoryPlan{{"arena", 8192}}, "scratch");
  size_t begun_ = 0;
};

TEST_F(LateArena, AViewFromBeforeARewindIsStaleAtOnce) {
  const Tensor kept = arena_->allocate(DType::float32, {4});
  Tensor x;
  {
    const ArenaScope scope(*arena_);
    x = arena_->allocate(DType::float32, {4});
    fill_zero(stream_, x);
  }
  EXPECT_ERROR(fill_zero(stream_, x.rows(1, 2)), ExitCode::crash, "used after its arena was released");
  const Tensor again = arena_->allocate(DType::float32, {4});
  EXPECT_EQ(again.raw(), x.raw());
  EXPECT_ERROR(fill_zero(stream_, x), ExitCode::crash, "used after its arena was released");
  fill_zero(stream_, again);
  fill_zero(stream_, kept);
  finish();
  arena_->release();
  EXPECT_ERROR(fill_zero(stream_, kept), ExitCode::crash, "used after its arena was released");
}

TEST_F(LateArena, ReleaseOrdersTheStreamBehindUsers) {
  (void)pinned();
  arena_->release();
  expect_order_behind_the_user();
}

TEST_F(LateArena, TheEndOfAScopeOrdersTheStreamBehindUsers) {
  (void)arena_->allocate(DType::float32, {4});
  {
    const ArenaScope scope(*arena_);
    (void)pinned();
  }
  expect_order_behind_the_user();
}

// Its memory goes at once.
TEST_F(LateArena, TheEndOfTheArenaWaitsForUsers) {
  (void)pinned();
  arena_.reset();
  EXPECT_EQ(queues_that_ran().front(), "exchange");
  EXPECT_FALSE(machine_.log().back().begins);
}

TEST_F(LateArena, TheEndOfTheArenaToleratesAFailedStream) {
  do_in(stream_, [] { throw_crash("the operation breaks"); });
  arena_.reset();
  EXPECT_ERROR(finish(), ExitCode::crash, "the operation breaks");
}

TEST_F(LateArena, WhatStaysIsNotWaitedFor) {
  const Tensor tensor = pinned();
  {
    const ArenaScope scope(*arena_);
    (void)arena_->allocate(DType::float32, {4});
  }
  expect_no_order();
  tensor.check_alive();
  begun_ = machine_.log().size();
  arena_->release();
  expect_order_behind_the_user();
}

TEST_F(LateArena, NobodyIsWaitedForWhileAnExceptionUnwinds) {
  try {
    const ArenaScope scope(*arena_);
    (void)pinned();
    throw std::runtime_error("unwinds");
  } catch (const std::runtime_error&) {
  }
  expect_no_order();
}

// Here, as launch/races builds without NDEBUG and without red zones.
TEST_F(LateArena, DebugBuildsFillReleasedMemoryWithNaN) {
#ifdef NDEBUG
  GTEST_SKIP() << "release build";
#else
  if (testing::red_zone() > 0) GTEST_SKIP() << "released memory is closed instead";
  (void)arena_->allocate(DType::float64, {64});
  arena_->release();
  const Tensor x = arena_->allocate(DType::float64, {64});
  finish();
  for (int64_t i = 0; i < 64; ++i) EXPECT_TRUE(std::isnan(x.data<double>()[i])) << i;
#endif
}

#ifdef __SANITIZE_ADDRESS__

// Writes one float at `offset` from the beginning of a tensor of `count`, in the stream's order.
void write_behind(Stream& stream, int64_t count, int64_t offset, bool released) {
  Arena arena(stream, "arena", {{"arena", 8192}}, "scratch");
  const Tensor x = arena.allocate(DType::float32, {count});
  (void)arena.allocate(DType::float32, {count});
  float* const target = x.data<float>() + offset;
  if (released) arena.release();
  do_in(stream, [target] { *const_cast<volatile float*>(target) = 1; });
  Event end;
  end.record(stream);
  end.wait_on_host();
}

void write_behind_in_both(bool late, int64_t count, int64_t offset, bool released) {
  Machine machine({.order = Order::late, .patience = scaled(20)});
  const std::unique_ptr<Queue> queue = late ? machine.make_queue("compute") : nullptr;
  Ledger ledger;
  Stream stream{.ledger = &ledger, .queue = queue.get()};
  write_behind(stream, count, offset, released);
}

TEST(RedZoneDeathTest, AWriteBehindATensorDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool late : {false, true}) {
    for (const int64_t count : {1, 63, 64}) {  // 64 fill their alignment
      write_behind_in_both(late, count, count - 1, false);
      EXPECT_DEATH(write_behind_in_both(late, count, count, false), "use-after-poison") << count;
    }
    EXPECT_DEATH(write_behind_in_both(late, 64, 0, true), "use-after-poison") << "released";
  }
}

#endif

}  // namespace
}  // namespace shiftron
