// Locks of directories: refused, released, taken over from the dead, never from the living.
#include "core/directory_lock.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "expect_error.h"
#include "scratch.h"
#include "thread_room.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

constexpr DirectoryLock::Timing kQuick{.touch = 0.05, .patience = 1};
const DirectoryLock::Notify kSilent;
using Hold = DirectoryLock::Hold;

// A child that takes the lock, says so, and keeps it until it is killed.
class HoldingChild {
 public:
  explicit HoldingChild(const std::string& directory) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ == 0) {
      const DirectoryLock lock(directory, "advice", kSilent, kQuick);
      [[maybe_unused]] const auto told = ::write(ends[1], "x", 1);
      while (true) ::pause();
    }
    char byte = 0;
    [[maybe_unused]] const auto got = ::read(ends[0], &byte, 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~HoldingChild() { kill(); }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  pid_t process() const { return process_; }

 private:
  pid_t process_ = 0;
};

// The lock's file, as a process on another host would have written it.
void lock_from_elsewhere(const std::string& directory, const std::string& number) {
  fs::create_directories(directory + "/.lock");
  std::ofstream(directory + "/.lock/" + number)
      << R"({"host":"elsewhere","process":1,"since":"2026-01-01T00:00:00.000Z","begin":"1","processes":"other"})";
}

TEST(DirectoryLock, IsExclusiveAndLeavesNothing) {
  const Scratch scratch;
  {
    const DirectoryLock lock(scratch.path(), "wait for it", kSilent);
    EXPECT_EQ(lock.look(), Hold::held);
    EXPECT_ERROR(DirectoryLock(scratch.path(), "wait for it", kSilent), ExitCode::bad_input,
                 scratch.path() + " is in use: process " + std::to_string(::getpid()) + " on ");
    EXPECT_EQ(lock.look(), Hold::held);
  }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
  const DirectoryLock again(scratch.path(), "", kSilent);
}

TEST(DirectoryLock, OfAKilledProcessIsTakenOverAtOnce) {
  const Scratch scratch;
  HoldingChild child(scratch.path());
  EXPECT_ERROR(DirectoryLock(scratch.path(), "stop it", kSilent), ExitCode::bad_input,
               "process " + std::to_string(child.process()) + " on ");
  EXPECT_FALSE(DirectoryLock::has_dead_holder(scratch.path()));
  child.kill();
  EXPECT_TRUE(DirectoryLock::has_dead_holder(scratch.path()));
  const DirectoryLock lock(scratch.path(), "", [](const std::string&) { ADD_FAILURE() << "waits"; });
  EXPECT_FALSE(DirectoryLock::has_dead_holder(scratch.path()));
  EXPECT_EQ(lock.look(), Hold::held);
}

TEST(DirectoryLock, OfAProcessWhoseNumberIsInUseAgainIsTakenOver) {
  const Scratch scratch;
  { HoldingChild child(scratch.path()); }
  const std::string path = scratch / ".lock/1";
  std::string text = Scratch::read(path);
  const size_t place = text.find("\"process\":") + 10;
  text.replace(place, text.find(',', place) - place, std::to_string(::getpid()));  // alive, but begun at another time
  std::ofstream(path) << text;
  const DirectoryLock lock(scratch.path(), "", kSilent);
}

// As on hosts whose /proc shows a user no process of others (hidepid): it may be alive, and says so by touching.
TEST(DirectoryLock, OfAProcessThatIsHiddenIsNotTakenForDead) {
  const Scratch scratch;
  fs::permissions(scratch.path(), fs::perms::all);
  const HoldingChild holder(scratch.path());
  fs::permissions(scratch / ".lock", fs::perms::all);
  const pid_t other = ::fork();
  if (other == 0) {
    constexpr int kNobody = 65534, kNoRight = 3;
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("proc", "/proc", "proc", 0, "hidepid=2") != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) {
      ::_exit(kNoRight);
    }
    try {
      if (DirectoryLock::has_dead_holder(scratch.path())) ::_exit(2);
      const DirectoryLock lock(scratch.path(), "", kSilent, {.touch = 0.05, .patience = 5});
      ::_exit(1);
    } catch (const Error& error) {
      ::_exit(error.code() == ExitCode::bad_input ? 0 : 4);
    }
  }
  int status = 0;
  ::waitpid(other, &status, 0);
  if (WEXITSTATUS(status) == 3) GTEST_SKIP() << "may not mount a /proc (needs root)";
  EXPECT_EQ(status, 0) << "1: taken, 2: reported as dead, 4: another error";
}

TEST(DirectoryLock, FromAnotherHostIsTakenOverWithoutASignOfLife) {
  const Scratch scratch;
  lock_from_elsewhere(scratch.path(), "41");
  EXPECT_FALSE(DirectoryLock::has_dead_holder(scratch.path())) << "who knows?";
  std::string told;
  const DirectoryLock lock(
      scratch.path(), "", [&](const std::string& message) { told = message; }, kQuick);
  EXPECT_THAT(told, ::testing::HasSubstr("process 1 on elsewhere at 2026-01-01"));
  EXPECT_EQ(lock.look(), Hold::held);
  EXPECT_TRUE(fs::exists(scratch / ".lock/42"));
  EXPECT_FALSE(fs::exists(scratch / ".lock/41"));
}

// Another process's file appears while this one waits: it steps back and closes the file that it had created.
TEST(DirectoryLock, StepsBackFromAFileThatItHasNotChecked) {
  const Scratch scratch;
  { HoldingChild child(scratch.path()); }
  const std::string of_the_dead = Scratch::read(scratch / ".lock/1");
  lock_from_elsewhere(scratch.path(), "2");
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = open_files();
  const DirectoryLock lock(scratch.path(), "", [&](const std::string&) { scratch.write(".lock/9", of_the_dead); },
                           {.touch = 0.05, .patience = 0.2});
  EXPECT_TRUE(fs::exists(scratch / ".lock/10"));
  EXPECT_FALSE(fs::exists(scratch / ".lock/3"));
  EXPECT_EQ(open_files(), before + 1);
}

TEST(DirectoryLock, FromAnotherHostIsRefusedWhileItIsTouched) {
  const Scratch scratch;
  lock_from_elsewhere(scratch.path(), "7");
  std::atomic<bool> done = false;
  std::thread holder([&] {  // its clock is years late
    for (int i = 0; !done; ++i) {
      fs::last_write_time(scratch / ".lock/7", fs::file_time_type() + std::chrono::hours(i));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_ERROR(DirectoryLock(scratch.path(), "stop it there", kSilent, {.touch = 0.05, .patience = 60}),
               ExitCode::bad_input, "process 1 on elsewhere has held it since 2026-01-01T00:00:00.000Z; stop it there");
  done = true;
  holder.join();
}

TEST(DirectoryLock, SeesThatItWasTakenOver) {
  const Scratch scratch;
  std::optional<DirectoryLock> lock;
  lock.emplace(scratch.path(), "", kSilent);
  fs::remove(scratch / ".lock/1");
  lock_from_elsewhere(scratch.path(), "2");
  EXPECT_EQ(lock->look(), Hold::taken);
  lock->retake();
  EXPECT_EQ(lock->look(), Hold::taken);
  lock.reset();
  EXPECT_TRUE(fs::exists(scratch / ".lock/2"));
}

TEST(DirectoryLock, RemovedByHandIsTakenAgain) {
  const Scratch scratch;
  const std::string run = scratch / "run";
  fs::create_directory(run);
  DirectoryLock lock(run, "", kSilent, kQuick);
  for (const std::string& removed : {run + "/.lock/1", run + "/.lock", run}) {
    fs::remove_all(removed);
    EXPECT_EQ(lock.look(), Hold::removed);
    lock.retake();
    EXPECT_EQ(lock.look(), Hold::held);
    EXPECT_ERROR(DirectoryLock(run, "", kSilent), ExitCode::bad_input, "is in use");
  }
}

TEST(DirectoryLock, ThatCannotBeTakenAgainStaysWhatItWas) {
  const Scratch scratch;
  std::optional<DirectoryLock> lock;
  lock.emplace(scratch.path(), "", kSilent);
  fs::remove_all(scratch / ".lock");
  std::ofstream(scratch / ".lock") << "no folder";
  EXPECT_ERROR(lock->retake(), ExitCode::crash, "cannot write " + scratch / ".lock/1");
  EXPECT_EQ(lock->look(), Hold::removed);
  fs::remove(scratch / ".lock");
  lock_from_elsewhere(scratch.path(), "1");  // another file of the same name
  EXPECT_EQ(lock->look(), Hold::taken);
  lock.reset();
  EXPECT_TRUE(fs::exists(scratch / ".lock/1"));
}

TEST(DirectoryLock, WhatIsNoLockIsPassedOver) {
  const Scratch scratch;
  fs::create_directories(scratch / ".lock/3/filled");
  std::ofstream(scratch / ".lock/4") << std::string(10000, 'x');
  std::ofstream(scratch / ".lock/notes") << "x";
  const DirectoryLock lock(scratch.path(), "", kSilent, {.touch = 0.05, .patience = 0.2});
  EXPECT_TRUE(fs::exists(scratch / ".lock/5"));
}

TEST(DirectoryLock, OfManyThatTryOneHolds) {
  constexpr int kThreads = 8, kRounds = 30;
  const Scratch scratch;
  for (int round = 0; round < kRounds; ++round) {
    if (round % 2 == 1) {  // a dead one to take over from
      HoldingChild child(scratch.path());
    }
    std::atomic<int> inside = 0, most = 0, got = 0, tried = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        try {
          const DirectoryLock lock(scratch.path(), "", kSilent, kQuick);
          most = std::max<int>(most, ++inside);
          ++got;
          ++tried;
          while (tried < kThreads) std::this_thread::yield();
          --inside;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ExitCode::bad_input) << error.what();
          ++tried;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(most, 1) << "round " << round;
    EXPECT_EQ(got, 1) << "round " << round;
  }
}

TEST(DirectoryLock, ThatCannotBeWrittenNamesThePath) {
  EXPECT_ERROR(DirectoryLock("/proc/nowhere", "", kSilent), ExitCode::crash, "cannot write /proc/nowhere/.lock");
}

TEST(DirectoryLock, WithoutAThreadNothingStaysLocked) {
  const Scratch scratch;
  EXPECT_EXIT(
      {
        const std::string path = scratch.path();
        leave_room_for_threads(0);
        try {
          const DirectoryLock lock(path, "", kSilent);
        } catch (const Error& error) {
          std::fprintf(stderr, "%s, %s\n", error.what(), std::filesystem::exists(path + "/.lock") ? "locked" : "free");
          _exit(static_cast<int>(error.code()));
        }
      },
      ::testing::ExitedWithCode(76), "cannot start a thread.*, free");
}

}  // namespace
}  // namespace shiftron
