// Sums of the ledger.
#include "core/ledger.h"

#include <gtest/gtest.h>

#include <cmath>

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

}  // namespace
}  // namespace shiftron
