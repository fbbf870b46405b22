// Sums of the ledger.
#include "core/ledger.h"

#include <gtest/gtest.h>

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

TEST(Ledger, TakesTimesOnce) {
  Ledger ledger;
  ledger.times.wait = 2;
  EXPECT_EQ(ledger.take_times().wait, 2);
  EXPECT_EQ(ledger.take_times().wait, 0);
}

}  // namespace
}  // namespace shiftron
