// Watchdog: ends a process that stays in a section of its work past the section's deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shiftron {

// One per process, passed. On expiry a thread of its own calls `on_expiry(section, seconds in it)`; when that returns,
// throws, or takes longer than `grace_seconds`, the process ends with exit code 71. Any thread may enter sections.
class Watchdog {
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::string name;
    Clock::time_point begin;
    Clock::time_point deadline;
  };

 public:
  using OnExpiry = std::function<void(const std::string& section, double seconds)>;
  static constexpr double kGraceSeconds = 4;
  explicit Watchdog(OnExpiry on_expiry, double grace_seconds = kGraceSeconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Left when it is destroyed or assigned to; must not outlive the watchdog.
  class [[nodiscard]] Section {
   public:
    Section() = default;
    ~Section() { leave(); }
    Section(Section&& other) noexcept : watchdog_(std::exchange(other.watchdog_, nullptr)), entry_(other.entry_) {}
    Section& operator=(Section&& other) noexcept;
    void leave();

   private:
    friend class Watchdog;
    Section(Watchdog* watchdog, std::list<Entry>::iterator entry) : watchdog_(watchdog), entry_(entry) {}
    Watchdog* watchdog_ = nullptr;
    std::list<Entry>::iterator entry_;
  };
  Section enter(std::string name, double deadline_seconds);  // sections may nest and overlap

 private:
  void watch();
  void report();
  [[noreturn]] void end_process();

  OnExpiry on_expiry_;
  double grace_seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Entry> entries_;
  Clock::time_point next_look_ = Clock::time_point::max();
  bool stopping_ = false;
  bool expired_ = false;
  double expired_seconds_ = 0;
  char expired_name_[256] = "";  // fixed: whoever hangs may hold the lock of the allocator
  std::condition_variable expiry_;
  std::atomic<bool> reported_ = false;
  std::thread reporter_;
  std::thread watcher_;
};

// How long a step may take: max(minimum, factor × median of the last steps). The first step is not counted, since it
// sets things up; until another one is known the set-up deadline holds.
class StepDeadline {
 public:
  explicit StepDeadline(double setup_seconds = 600, double minimum_seconds = 60, double factor = 10)
      : setup_seconds_(setup_seconds), minimum_seconds_(minimum_seconds), factor_(factor) {}
  void add(double step_seconds);
  double seconds() const;

 private:
  static constexpr int64_t kWindow = 64;  // steps
  double setup_seconds_;
  double minimum_seconds_;
  double factor_;
  int64_t steps_ = 0;  // with the first
  std::vector<double> window_;
};

}  // namespace shiftron
