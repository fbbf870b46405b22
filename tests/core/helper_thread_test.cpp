#include "core/helper_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <vector>

namespace shiftron {
namespace {

class EitherWay : public ::testing::TestWithParam<bool> {};

TEST_P(EitherWay, WorkIsDoneInItsOrderOnePieceAtATime) {
  HelperThread helper(GetParam());
  std::vector<int> done;  // not guarded: ThreadSanitizer sees what overlaps
  for (int i = 0; i < 200; ++i) {
    helper.start([&done, i] { done.push_back(i); });
  }
  helper.finish();
  ASSERT_EQ(done.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
}

TEST_P(EitherWay, AFaultReachesTheOwnerOnceAndTheNextWorkDoesNotBegin) {
  HelperThread helper(GetParam());
  bool began = false;
  EXPECT_THROW(
      {
        helper.start([] { throw std::runtime_error("a fault"); });
        helper.start([&] { began = true; });
      },
      std::runtime_error);
  EXPECT_NO_THROW(helper.finish());
  EXPECT_FALSE(began);
  helper.start([&] { began = true; });
  helper.finish();
  EXPECT_TRUE(began);
}

TEST_P(EitherWay, ItEndsBehindTheWorkUnderWay) {
  bool done = false;
  {
    HelperThread helper(GetParam());
    helper.start([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
    });
  }
  EXPECT_TRUE(done);
}

INSTANTIATE_TEST_SUITE_P(Threads, EitherWay, ::testing::Bool());

TEST(HelperThread, WorksBesideItsOwner) {
  HelperThread helper(true);
  std::atomic<bool> go = false, seen = false;
  helper.start([&] {
    while (!go) std::this_thread::yield();
    seen = true;
  });
  EXPECT_FALSE(seen);
  go = true;  // would never be reached, were the work done by start()
  helper.finish();
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace shiftron
