// Order, faults, waiting, threads that cannot be created.
#include "core/ordered_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "thread_room.h"

namespace shiftron {
namespace {

using ::testing::HasSubstr;

struct Number {
  int64_t value = 0, square = 0;
  std::thread::id by = {};
};
using Numbers = OrderedWork<Number>;

void nobody_is_told(const Number&, size_t) {}

// most: items that wait.
std::vector<Number> squares(int threads, int64_t count, uint64_t most) {
  std::vector<Number> taken;
  Numbers work(threads, most * (Numbers::own_bytes() + 1),
               {.work =
                    [](Number& number, const auto&) {
                      // The earlier ones take longer, so that later ones are done before them.
                      if (number.value % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
                      number.square = number.value * number.value;
                      number.by = std::this_thread::get_id();
                    },
                .take = [&](Number& number) { taken.push_back(number); },
                .progressed = nobody_is_told});
  for (int64_t i = 0; i < count; ++i) work.add({.value = i}, 1);
  work.finish();
  return taken;
}

TEST(OrderedWork, TakesInOrder) {
  for (const int threads : {0, 1, 2, 5}) {
    for (const uint64_t most : {0, 1, 3, 1000}) {
      const std::vector<Number> taken = squares(threads, 100, most);
      ASSERT_EQ(taken.size(), 100u);
      for (size_t i = 0; i < taken.size(); ++i) {
        EXPECT_EQ(taken[i].value, static_cast<int64_t>(i));
        EXPECT_EQ(taken[i].square, taken[i].value * taken[i].value);
        EXPECT_EQ(taken[i].by == std::this_thread::get_id(), threads <= 1);
      }
    }
  }
}

TEST(OrderedWork, EachThreadHasACopyOfTheWork) {
  std::map<std::thread::id, std::vector<int64_t>> counts;
  Numbers work(3, 1000 * (Numbers::own_bytes() + 1),
               {.work =
                    [count = int64_t{0}](Number& number, const auto&) mutable {
                      std::this_thread::sleep_for(std::chrono::microseconds(100));
                      number = {.square = ++count, .by = std::this_thread::get_id()};
                    },
                .take = [&](Number& number) { counts[number.by].push_back(number.square); },
                .progressed = nobody_is_told});
  for (int64_t i = 0; i < 100; ++i) work.add({}, 1);
  work.finish();
  EXPECT_EQ(counts.size(), 3u);
  for (const auto& [by, numbers] : counts) {
    for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], static_cast<int64_t>(i + 1));
  }
}

TEST(OrderedWork, NoMoreWaitsThanIsAllowed) {
  int64_t added = 0, taken = 0, most_waiting = 0;
  constexpr uint64_t kEach = Numbers::own_bytes() + 2;
  Numbers work(3, 5 * kEach,
               {.work = [](Number&, const auto&) {},
                .take = [&](Number&) { most_waiting = std::max(most_waiting, added - taken++); },
                .progressed = nobody_is_told});
  for (; added < 200;) {
    ++added;
    work.add({}, 2);
    EXPECT_LE(added - taken, 5);
  }
  work.add({}, 6 * kEach);  // waits alone
  EXPECT_EQ(taken, 201);
  EXPECT_LE(most_waiting, 6) << "one is added before others are taken";
}

// After one that takes long.
TEST(OrderedWork, ItemsThatHoldNothingWaitToo) {
  constexpr int64_t kMost = 100 * Numbers::own_bytes(), kAll = 1000;
  std::atomic<bool> heard = false;
  int64_t added = 0, waiting = 0;
  Numbers work(2, kMost,
               {.work =
                    [&](Number& number, const auto&) {
                      while (number.value == 0 && !heard) std::this_thread::yield();
                    },
                .take = [](Number&) {},
                .progressed =
                    [&](const Number&, size_t) {
                      if (!heard) waiting = added;
                      heard = true;
                    }});
  for (; added < kAll;) {
    const int64_t value = added++;
    work.add({.value = value}, 0);
  }
  work.finish();
  EXPECT_GT(waiting, 1);
  EXPECT_LE(waiting, 101) << "one is added before others are taken";
}

// Of five, the third fails: two are taken, then the fault comes, on the caller's thread.
TEST(OrderedWork, AFaultComesInItsTurn) {
  for (const int threads : {1, 4}) {
    int taken = 0;
    std::string fault;
    try {
      Numbers work(threads, 10 * Numbers::own_bytes(),
                   {.work =
                        [](Number& number, const auto&) {
                          if (number.value == 2) throw_bad_input("number 2");
                        },
                    .take = [&](Number&) { ++taken; },
                    .progressed = nobody_is_told});
      for (int64_t i = 0; i < 5; ++i) work.add({.value = i}, 1);
      work.finish();
    } catch (const Error& error) {
      fault = error.what();
    }
    EXPECT_THAT(fault, HasSubstr("number 2")) << threads;
    EXPECT_EQ(taken, 2) << threads;
  }
}

TEST(OrderedWork, TheCallerIsToldOfWhatItWaitsFor) {
  std::atomic<bool> heard = false;
  std::vector<size_t> told;
  Numbers work(2, 0,
               {.work =
                    [&](Number&, const auto& notify) {
                      notify(25);
                      while (!heard) std::this_thread::yield();
                    },
                .take = [](Number&) {},
                .progressed =
                    [&](const Number&, size_t done) {
                      told.push_back(done);
                      heard = done == 25;
                    }});
  work.add({}, 1);
  EXPECT_THAT(told, ::testing::Contains(25u));
}

TEST(OrderedWork, FewerThreadsThanWantedDoIt) {
  for (const int room : {0, 2}) {
    EXPECT_EXIT(
        {
          leave_room_for_threads(room);
          const std::vector<Number> taken = squares(8, 50, 10);
          ::_exit(taken.size() == 50 && (taken[9].by == std::this_thread::get_id()) == (room == 0) ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "")
        << room;
  }
}

}  // namespace
}  // namespace shiftron
