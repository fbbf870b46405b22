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

// The time that work may take, and the configuration key that sets it.
struct Deadline {
  double seconds = 0;
  std::string key{};
};

// One per process, passed as an argument. On expiry a separate thread calls `on_expiry`; when that returns, throws, or
// takes longer than `grace_seconds`, the process ends with exit code 71. Any thread may enter sections. Time in which
// the whole process was stopped (Ctrl-Z, a frozen container) does not count.
class Watchdog {
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::string name, key;
    Clock::duration span{};
    Clock::time_point begin{};
    Clock::time_point deadline{};
    bool for_files = false;
  };

 public:
  struct Expiry {
    std::string section, key;
    double seconds = 0;  // in the section, or since it was renewed
    bool for_files = false;
    std::string under_way;  // the inquiry's last answer
    std::string fault;      // its error; then no deadline has passed
  };
  using OnExpiry = std::function<void(const Expiry& expiry)>;
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
    void renew();  // there is progress: the deadline counts from now

   private:
    friend class Watchdog;
    Section(Watchdog* watchdog, std::list<Entry>::iterator entry) : watchdog_(watchdog), entry_(entry) {}
    Watchdog* watchdog_ = nullptr;
    std::list<Entry>::iterator entry_;
  };
  Section enter(std::string name, const Deadline& deadline);  // sections may nest and overlap
  // A wait for files. A network file system may delay it for minutes, so meanwhile time counts only in sections of this
  // kind, as checked once a second.
  Section enter_file_wait(std::string name, const Deadline& deadline);
  bool waits_for_files(double seconds);  // some wait for files has lasted longer
  // Another process waits for files: for so many seconds from now on, time counts here only in waits for files.
  void pause(double seconds);

  // While it lives and a section is open, a thread calls `under_way` about once a second: what the process waits for.
  // An exception from it ends the process like an expiry. One at a time; must not outlive the watchdog.
  class [[nodiscard]] Inquiry {
   public:
    Inquiry(Watchdog& watchdog, std::function<std::string()> under_way);
    ~Inquiry();
    Inquiry(const Inquiry&) = delete;
    Inquiry& operator=(const Inquiry&) = delete;

   private:
    void ask();
    Watchdog& watchdog_;
    std::function<std::string()> under_way_;
    bool ends_ = false;  // under the watchdog's mutex
    std::condition_variable end_;
    std::thread thread_;
  };

 private:
  Section add(Entry entry, double seconds);
  void stop();  // both threads
  void watch();
  void pass_over(Clock::duration elapsed);
  void report();
  [[noreturn]] void end_process();

  OnExpiry on_expiry_;
  double grace_seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Entry> entries_;
  Clock::time_point next_look_ = Clock::time_point::max();
  Clock::time_point paused_until_ = Clock::time_point::min();
  bool stopping_ = false;
  bool expired_ = false, expired_for_files_ = false;
  double expired_seconds_ = 0;
  char expired_name_[4352] = "",
       expired_key_[64] = "";  // a path fits; fixed: a thread that hangs may hold the allocator's lock
  char under_way_[1024] = "", fault_[1024] = "";
  std::condition_variable expiry_;
  std::atomic<bool> reported_ = false;
  std::thread reporter_;
  std::thread watcher_;
};

// How long a step may take: max(minimum, factor × median of the last steps). The first step is not counted, because it
// sets things up; until another one is known, the set-up deadline holds.
class StepDeadline {
 public:
  explicit StepDeadline(const Deadline& setup, double minimum_seconds = 60, double factor = 10)
      : setup_(setup), minimum_seconds_(minimum_seconds), factor_(factor) {}
  void add(double step_seconds);
  Deadline deadline() const;

 private:
  static constexpr int64_t kWindow = 64;  // steps
  Deadline setup_;
  double minimum_seconds_;
  double factor_;
  int64_t steps_ = 0;  // including the first
  std::vector<double> window_;
};

}  // namespace shiftron
