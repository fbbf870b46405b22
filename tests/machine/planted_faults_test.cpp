// A small training loop on three queues, correct and with one missing or misplaced wait: the orders show wrong values,
// and ThreadSanitizer reports every fault in every order.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/sanitizer.h"
#include "machine/scheduler.h"
#include "machine/stated_loops.h"

namespace shiftron {
namespace {

enum class Fault {
  none,
  compute_does_not_wait_for_the_copy,
  host_refills_before_the_copy,
  host_reads_without_waiting,
  copy_over_what_is_read,
  result_used_before_its_mark,
  mark_before_its_operation,
};
constexpr std::array kFaults = {Fault::compute_does_not_wait_for_the_copy, Fault::host_refills_before_the_copy,
                                Fault::host_reads_without_waiting,         Fault::copy_over_what_is_read,
                                Fault::result_used_before_its_mark,        Fault::mark_before_its_operation};
constexpr const char* kFaultNames[] = {"none",
                                       "compute does not wait for the copy",
                                       "host refills before the copy",
                                       "host reads without waiting",
                                       "copy over what is read",
                                       "result used before its mark",
                                       "mark before its operation"};

constexpr int kSteps = 6, kElements = 16;
using Numbers = std::array<int64_t, kElements>;
struct Slot {
  Numbers pinned{}, batch{}, partial{}, summed{};
  std::shared_ptr<Mark> copied, read, exchanged;
};
struct Memory {
  Slot slots[2];
  Numbers total{};
};

// Never freed: freeing would be one more access, which waits for nothing in the loops with faults.
Memory& new_memory() {
  static auto& all = *new std::vector<std::unique_ptr<Memory>>;
  return *all.emplace_back(std::make_unique<Memory>());
}

void multiply_add(std::span<int64_t> out, std::span<const int64_t> in, int64_t factor, int64_t keep) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = keep * out[i] + factor * in[i];
}

using Body = decltype(&multiply_add);

Numbers loop(const MachineOptions& options, Fault fault, Body body = multiply_add) {
  Memory& memory = new_memory();
  Machine machine(options);
  const auto copy = machine.make_queue("copy"), compute = copy->sibling("compute"),
             exchange = copy->sibling("exchange");
  const auto wait = [fault](Queue& queue, const std::shared_ptr<Mark>& mark, Fault left_out) {
    if (mark != nullptr && fault != left_out) queue.wait(mark);
  };
  std::shared_ptr<Mark> done;
  for (int step = 0; step < kSteps; ++step) {
    Slot& slot = memory.slots[step % 2];
    if (slot.copied != nullptr && fault != Fault::host_refills_before_the_copy) slot.copied->wait();
    for (int i = 0; i < kElements; ++i) slot.pinned[i] = 100 * step + i;

    wait(*copy, slot.read, Fault::copy_over_what_is_read);
    const auto before = fault == Fault::mark_before_its_operation ? copy->mark() : nullptr;
    copy->run([&slot, body] { body(slot.batch, slot.pinned, 1, 0); });
    slot.copied = before != nullptr ? before : copy->mark();

    wait(*compute, slot.copied, Fault::compute_does_not_wait_for_the_copy);
    compute->run([&slot, body] { body(slot.partial, slot.batch, 2, 0); });
    slot.read = compute->mark();

    exchange->wait(slot.read);
    exchange->run([&slot, body] { body(slot.summed, slot.partial, 3, 0); });
    slot.exchanged = exchange->mark();

    wait(*compute, slot.exchanged, Fault::result_used_before_its_mark);
    compute->run([&slot, &memory, body] { body(memory.total, slot.summed, 1, 1 + 6); });
    done = compute->mark();
  }
  if (fault != Fault::host_reads_without_waiting) done->wait();
  const Numbers result = memory.total;
  for (const auto* queue : {&copy, &compute, &exchange}) (*queue)->mark()->wait();  // what never runs is not reported
  return result;
}

Numbers right() {
  Numbers total{};
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kElements; ++i) total[i] = 7 * total[i] + 6 * (100 * step + i);
  }
  return total;
}

TEST(PlantedFaults, TheLoopWithoutFaultIsRightInEveryOrder) {
  for (const Order order : kOrders) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      for (const Body body : {multiply_add, stated_multiply_add}) {
        EXPECT_EQ(loop({.order = order, .seed = seed}, Fault::none, body), right())
            << kOrderNames[static_cast<int>(order)] << ", seed " << seed;
      }
    }
  }
}

TEST(PlantedFaults, LateOrUnevenShowsAWrongValue) {
  if (sanitizer::kThreads) GTEST_SKIP() << "would be reported";
  for (const Fault fault : kFaults) {
    int wrong[4] = {};
    for (const Order order : kOrders) {
      for (uint64_t seed = 0; seed < 8; ++seed) {
        wrong[static_cast<int>(order)] += loop({.order = order, .seed = seed}, fault) != right();
      }
    }
    const std::string name = kFaultNames[static_cast<int>(fault)];
    std::printf("%-36s wrong of 8 seeds: eager %d, random %d, late %d, uneven %d\n", name.c_str(), wrong[0], wrong[1],
                wrong[2], wrong[3]);
    EXPECT_GT(wrong[2] + wrong[3], 0) << name;
  }
}

// ThreadSanitizer's exit code is 66.
void expect_exit(Fault fault, int code, const char* text) {
  if (!sanitizer::kThreads) GTEST_SKIP() << "for builds with ThreadSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Order order : kOrders) {
    for (const Body body : {multiply_add, stated_multiply_add}) {
      SCOPED_TRACE(std::string(kOrderNames[static_cast<int>(order)]) + (body == multiply_add ? "" : ", stated"));
      EXPECT_EXIT((loop({.order = order}, fault, body), std::exit(0)), ::testing::ExitedWithCode(code), text);
    }
  }
}

class PlantedFaultsDeathTest : public ::testing::TestWithParam<Fault> {};

TEST_P(PlantedFaultsDeathTest, AreReportedInEveryOrder) {
  expect_exit(GetParam(), 66, "data race");
}

INSTANTIATE_TEST_SUITE_P(All, PlantedFaultsDeathTest, ::testing::ValuesIn(kFaults), [](const auto& tested) {
  std::string name = kFaultNames[static_cast<int>(tested.param)];
  for (char& letter : name) letter = letter == ' ' ? '_' : letter;
  return name;
});

// Both hosts use the emulator, one after the other, and nothing orders them.
void two_hosts(Order order) {
  Machine machine({.order = order});
  std::atomic<bool> done = false;
  int shared = 0;
  const auto work = [&machine] {
    const auto queue = machine.make_queue("queue");
    queue->run([] {});
    queue->mark()->wait();
  };
  std::thread first([&] {
    shared = 1;
    work();
    done.store(true, std::memory_order_relaxed);
  });
  std::thread second([&] {
    while (!done.load(std::memory_order_relaxed)) std::this_thread::yield();
    work();
    shared = 2;
  });
  first.join();
  second.join();
}

TEST(TwoHostsDeathTest, AreNotOrderedByTheMachine) {
  if (!sanitizer::kThreads) GTEST_SKIP() << "for builds with ThreadSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Order order : kOrders) {
    EXPECT_EXIT((two_hosts(order), std::exit(0)), ::testing::ExitedWithCode(66), "data race")
        << kOrderNames[static_cast<int>(order)];
  }
}

TEST(NoFaultDeathTest, IsNotReported) {
  expect_exit(Fault::none, 0, "^$");
}

}  // namespace
}  // namespace shiftron
