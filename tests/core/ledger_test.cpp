// Sums of the ledger.
#include "core/ledger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

namespace shiftron {
namespace {

TEST(Ledger, AddsUp) {
  Ledger ledger;
  ledger.add_kernel("add", 10, 5, 3);
  ledger.add_kernel("add", 10, 5, 3);
  ledger.add_kernel("copy", 1, 1, 0);
  EXPECT_EQ(ledger.kernels().at("add"), (KernelCost{2, 20, 10, 6}));
  ledger.add_traffic("tp", "all_reduce", 100);
  ledger.add_traffic("tp", "all_reduce", 28);
  ledger.add_traffic("dp", "all_reduce", 1);
  EXPECT_EQ(ledger.traffic().at("tp all_reduce"), (TrafficCost{2, 128}));
  ledger.add_memory("weights", 64);
  ledger.add_memory("scratch", 32);
  ledger.add_memory("weights", -16);
  EXPECT_EQ(ledger.memory_total(), 80);
  ledger.clear_work();
  EXPECT_TRUE(ledger.kernels().empty());
  EXPECT_TRUE(ledger.traffic().empty());
  EXPECT_EQ(ledger.memory_total(), 80);
}

TEST(Ledger, CountsRepeatsAsOftenAsTheyStandFor) {
  Ledger ledger;
  ledger.add_traffic("tp", "all_reduce", 5);
  {
    const Ledger::Repeat microbatches(ledger, 3);
    ledger.add_kernel("add", 10, 5, 2);
    {
      const Ledger::Repeat chunks(ledger, 4);
      ledger.add_kernel("add", 10, 5, 2);
      ledger.add_traffic("tp", "all_reduce", 1);
    }
    ledger.add_memory("scratch", 7);
  }
  ledger.add_kernel("add", 1, 1, 1);
  EXPECT_EQ(ledger.kernels().at("add"), (KernelCost{3 + 12 + 1, 151, 76, 31}));
  EXPECT_EQ(ledger.traffic().at("tp all_reduce"), (TrafficCost{13, 17}));
  EXPECT_EQ(ledger.memory_total(), 7);
}

TEST(Ledger, SumsOfManyStepsMayExceed63Bits) {
  Ledger ledger;
  for (int step = 0; step < 10'000; ++step) {
    ledger.begin_step();
    KernelCost& cost = ledger.add_kernel("multiply", 1, 2, int64_t{1} << 50);
    cost.seconds += 2;
    EXPECT_EQ(ledger.kernels().at("multiply"), (KernelCost{1, 1, 2, int64_t{1} << 50, 2}));
  }
  const KernelSum sum = ledger.sums().at("multiply");
  EXPECT_EQ(sum.calls, 10'000);
  EXPECT_EQ(sum.bytes, 30'000);
  EXPECT_EQ(sum.operations, 1e4 * std::pow(2, 50));
  EXPECT_EQ(sum.seconds, 20'000);
  ledger.clear_work();
  EXPECT_TRUE(ledger.sums().empty());
}

// As where a device tells them while the next step is under way.
TEST(Ledger, TimesThatComeLateCount) {
  Ledger ledger;
  KernelCost& cost = ledger.add_kernel("multiply", 1, 1, 1);
  ledger.begin_step();
  cost.seconds += 3;
  EXPECT_EQ(ledger.sums().at("multiply").seconds, 3);
}

TEST(Ledger, TakesTimesOnce) {
  Ledger ledger;
  ledger.times.wait = 2;
  EXPECT_EQ(ledger.take_times().wait, 2);
  EXPECT_EQ(ledger.take_times().wait, 0);
}

// A place that a device reaches at a time.
class FakeMark : public Mark {
 public:
  explicit FakeMark(double time) : time_(time) {}
  bool reached() override { return time_ < kUnreached; }
  void wait() override {}
  double seconds_since(const Mark& earlier) const override {
    return time_ - dynamic_cast<const FakeMark&>(earlier).time_;
  }
  static constexpr double kUnreached = 1e9;

 private:
  double time_;
};
std::shared_ptr<Mark> at(double time) {
  return std::make_shared<FakeMark>(time);
}

TEST(Ledger, AStreamStandsStillFromItsQuestionToTheEndOfAnOperation) {
  Ledger ledger;
  TrafficTime& time = ledger.traffic_time("tp", "all_gather");
  ledger.add_awaited({&TimeSplit::communication, &time, at(1), at(2), at(5)});
  ledger.add_awaited({&TimeSplit::communication, &time, at(5), at(8), at(7)});  // over before it was asked for
  ledger.add_awaited({&TimeSplit::wait, nullptr, nullptr, at(10), at(14)});
  ledger.add_awaited({&TimeSplit::wait, nullptr, nullptr, at(20), at(FakeMark::kUnreached)});
  std::vector<AwaitedOperation> operations = ledger.take_awaited();
  EXPECT_TRUE(ledger.take_awaited().empty());
  TimeSplit times{.communication = 100};
  take_reached(operations, times);
  EXPECT_EQ(times.communication, 103);
  EXPECT_EQ(times.wait, 4);
  EXPECT_EQ(operations.size(), 1u);
  const TrafficTime& found = ledger.traffic_times().at("tp all_gather");
  EXPECT_EQ(found.calls, 2);
  EXPECT_EQ(found.seconds, 4 + 2);
  EXPECT_EQ(found.awaited, 3);
  ledger.clear_work();
  EXPECT_TRUE(ledger.traffic_times().empty());
}

}  // namespace
}  // namespace shiftron
