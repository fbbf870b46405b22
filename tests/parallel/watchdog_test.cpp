// The watchdog: reliable ends, sections that are left in time, and the deadline of steps.
#include "parallel/watchdog.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "core/check.h"
#include "thread_room.h"
#include "time_scale.h"

namespace shiftron {
namespace {

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void print(const Watchdog::Expiry& expiry) {
  std::fprintf(stderr, "section %s after %.1f s (%s)\n", expiry.section.c_str(), expiry.seconds, expiry.key.c_str());
}

class WatchdogEnd : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(WatchdogEnd, NamesTheSectionAndExits71) {
  EXPECT_EXIT(
      {
        Watchdog watchdog(print);
        const Watchdog::Section whole = watchdog.enter("whole run", {100});
        const Watchdog::Section section = watchdog.enter("step 12: forward", {0.3, "fault.step_deadline"});
        sleep_seconds(scaled(30));
      },
      ::testing::ExitedWithCode(71), "section step 12: forward after [0-9]+\\.[0-9] s \\(fault.step_deadline\\)");
}

TEST_F(WatchdogEnd, IsCertainWhenTheReportHangs) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EXIT(
      {
        std::mutex never;
        never.lock();
        Watchdog watchdog([&](const Watchdog::Expiry& expiry) {
          print(expiry);
          never.lock();
        });
        const Watchdog::Section section = watchdog.enter("save", {0.1});
        sleep_seconds(scaled(30));
      },
      ::testing::ExitedWithCode(71), "section save");
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), scaled(6));
}

TEST_F(WatchdogEnd, IsCertainWhenTheReportThrows) {
  EXPECT_EXIT(
      {
        Watchdog watchdog([](const Watchdog::Expiry&) { throw std::runtime_error("no disk"); });
        const Watchdog::Section section = watchdog.enter("save", {0.1});
        sleep_seconds(scaled(30));
      },
      ::testing::ExitedWithCode(71), "cannot report that section save expired: no disk");
}

TEST_F(WatchdogEnd, TellsWhatIsUnderWay) {
  EXPECT_EXIT(
      {
        Watchdog watchdog([](const Watchdog::Expiry& expiry) {
          std::fprintf(stderr, "%s waits for %s", expiry.section.c_str(), expiry.under_way.c_str());
        });
        const Watchdog::Inquiry inquiry(watchdog, [] { return std::string("group dp"); });
        const Watchdog::Section section = watchdog.enter("step 3", {scaled(3)});
        sleep_seconds(scaled(60));
      },
      ::testing::ExitedWithCode(71), "step 3 waits for group dp");
}

TEST_F(WatchdogEnd, ComesWithAFaultThatTheInquiryFinds) {
  EXPECT_EXIT(
      {
        Watchdog watchdog([](const Watchdog::Expiry& expiry) {
          std::fprintf(stderr, "%s: %s", expiry.section.c_str(), expiry.fault.c_str());
        });
        const Watchdog::Inquiry inquiry(watchdog, []() -> std::string { throw std::runtime_error("a peer is lost"); });
        const Watchdog::Section section = watchdog.enter("step 3", {1e6});
        sleep_seconds(scaled(60));
      },
      ::testing::ExitedWithCode(71), "step 3: a peer is lost");
}

// An answer that never comes holds up no expiry.
TEST_F(WatchdogEnd, IsCertainWhenTheInquiryHangs) {
  EXPECT_EXIT(
      {
        std::mutex never;
        never.lock();
        Watchdog watchdog(print);
        const Watchdog::Inquiry inquiry(watchdog, [&]() -> std::string {
          never.lock();
          return {};
        });
        const Watchdog::Section section = watchdog.enter("step 4", {scaled(3)});
        sleep_seconds(scaled(60));
      },
      ::testing::ExitedWithCode(71), "section step 4");
}

// A deadline that comes before the one waited for is seen.
TEST_F(WatchdogEnd, SeesAnEarlierDeadline) {
  EXPECT_EXIT(
      {
        Watchdog watchdog(print);
        const Watchdog::Section outer = watchdog.enter("outer", {scaled(20)});
        sleep_seconds(0.1);
        std::thread other([&] {
          const Watchdog::Section inner = watchdog.enter("inner", {0.2});
          sleep_seconds(scaled(30));
        });
        other.join();
      },
      ::testing::ExitedWithCode(71), "section inner after [0-9]\\.");
}

TEST(Watchdog, LetsSectionsPassThatEndInTime) {
  Watchdog watchdog(print);
  Watchdog::Section section = watchdog.enter("first", {scaled(0.5)});
  for (int i = 0; i < 10; ++i) {
    sleep_seconds(scaled(0.1));
    section = watchdog.enter("next", {scaled(0.5)});
  }
  section.leave();
  section.leave();
  sleep_seconds(scaled(0.6));
  EXPECT_THROW((void)watchdog.enter("nothing", {0}), std::exception);
}

TEST_F(WatchdogEnd, ComesWhenProgressEnds) {
  EXPECT_EXIT(
      {
        Watchdog watchdog(print);
        Watchdog::Section section = watchdog.enter("evaluation", {scaled(1)});
        for (int i = 0; i < 20; ++i) {  // twice the deadline
          sleep_seconds(scaled(0.1));
          section.renew();
        }
        std::fprintf(stderr, "lived; ");
        sleep_seconds(scaled(30));
      },
      ::testing::ExitedWithCode(71), "lived; section evaluation after ");
}

// A file system that does not answer is no hang of a step; what comes after it is.
TEST_F(WatchdogEnd, ATimeOfWaitingForFilesDoesNotCount) {
  EXPECT_EXIT(
      {
        Watchdog watchdog(print);
        const Watchdog::Section section = watchdog.enter("step 3", {scaled(1)});
        {
          const Watchdog::Section wait = watchdog.enter_file_wait("reading shard-00000.h5", {scaled(60)});
          EXPECT_FALSE(watchdog.waits_for_files(scaled(60)));
          sleep_seconds(scaled(3));
          if (!watchdog.waits_for_files(scaled(1))) _exit(1);
        }
        if (watchdog.waits_for_files(0)) _exit(2);
        std::fprintf(stderr, "lived; ");
        sleep_seconds(scaled(30));
      },
      ::testing::ExitedWithCode(71), "^lived; section step 3 after ");
}

TEST_F(WatchdogEnd, WaitsForFilesHaveADeadline) {
  EXPECT_EXIT(
      {
        Watchdog watchdog([](const Watchdog::Expiry& expiry) {
          print(expiry);
          std::fprintf(stderr, "%s", expiry.for_files ? "of files" : "of a step");
        });
        const Watchdog::Section section = watchdog.enter("step 3", {scaled(2)});
        const Watchdog::Section wait = watchdog.enter_file_wait("reading shard-00000.h5", {scaled(4), "key"});
        sleep_seconds(scaled(60));
      },
      ::testing::ExitedWithCode(71), "^section reading shard-00000.h5 after [0-9.]+ s \\(key\\)\nof files");
}

TEST_F(WatchdogEnd, APauseEnds) {
  EXPECT_EXIT(
      {
        Watchdog watchdog(print);
        const Watchdog::Section section = watchdog.enter("step 3", {scaled(1)});
        watchdog.pause(scaled(3));
        sleep_seconds(scaled(2.5));
        std::fprintf(stderr, "lived; ");
        sleep_seconds(scaled(30));
      },
      ::testing::ExitedWithCode(71), "^lived; section step 3 after ");
}

TEST(Watchdog, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  const pid_t child = ::fork();
  if (child == 0) {
    Watchdog watchdog(print);
    const Watchdog::Section section = watchdog.enter("step 3", {scaled(2)});
    sleep_seconds(scaled(1));
    ::_exit(0);
  }
  sleep_seconds(scaled(0.5));
  ::kill(child, SIGSTOP);
  sleep_seconds(scaled(2.5));  // past the deadline
  ::kill(child, SIGCONT);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Watchdog, CostsMicroseconds) {
  Watchdog watchdog(print);
  const std::clock_t start = std::clock();  // CPU time, which other processes do not change
  for (int i = 0; i < 100000; ++i) const Watchdog::Section section = watchdog.enter("step", {60});
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 1);
}

TEST(StepDeadline, FollowsTheMedian) {
  StepDeadline automatic({600, "fault.setup_deadline"}, 60, 10);
  EXPECT_EQ(automatic.deadline().seconds, 600);
  EXPECT_EQ(automatic.deadline().key, "fault.setup_deadline");
  automatic.add(300);  // the first sets things up
  EXPECT_EQ(automatic.deadline().seconds, 600);
  automatic.add(1);
  EXPECT_EQ(automatic.deadline().seconds, 60);
  EXPECT_EQ(automatic.deadline().key, "fault.step_deadline");
  for (int i = 0; i < 64; ++i) automatic.add(i % 16 == 0 ? 500 : 20);  // seldom ones do not count
  EXPECT_EQ(automatic.deadline().seconds, 200);
  for (int i = 0; i < 64; ++i) automatic.add(8);
  EXPECT_EQ(automatic.deadline().seconds, 80);
}

TEST_F(WatchdogEnd, OneThreadAloneIsAnError) {
  for (const int threads : {0, 1}) {
    EXPECT_EXIT(
        {
          leave_room_for_threads(threads);
          try {
            const Watchdog watchdog(print);
          } catch (const Error& error) {
            std::fprintf(stderr, "%s\n", error.what());
            _exit(static_cast<int>(error.code()));
          }
          _exit(0);
        },
        ::testing::ExitedWithCode(76), "cannot start a thread \\(.*ulimit -u")
        << threads;
  }
}

}  // namespace
}  // namespace shiftron
