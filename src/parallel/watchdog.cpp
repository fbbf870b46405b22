// Two threads, started early so that a process that hangs needs no new resources: one watches and ends it, one reports.
#include "parallel/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "core/check.h"
#include "core/median.h"
#include "core/thread_without_signals.h"

namespace shiftron {
namespace {

std::chrono::steady_clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Watchdog::Watchdog(OnExpiry on_expiry, double grace_seconds)
    : on_expiry_(std::move(on_expiry)), grace_seconds_(grace_seconds) {
  reporter_ = thread_without_signals([this] { report(); });
  try {
    watcher_ = thread_without_signals([this] { watch(); });
  } catch (...) {
    stop();
    throw;
  }
}

Watchdog::~Watchdog() {
  stop();
}

void Watchdog::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  expiry_.notify_all();
  for (std::thread* thread : {&watcher_, &reporter_}) {
    if (thread->joinable()) thread->join();
  }
}

Watchdog::Section Watchdog::enter(std::string name, const Deadline& deadline) {
  return add({.name = std::move(name), .key = deadline.key}, deadline.seconds);
}

Watchdog::Section Watchdog::enter_file_wait(std::string name, const Deadline& deadline) {
  return add({.name = std::move(name), .key = deadline.key, .for_files = true}, deadline.seconds);
}

Watchdog::Section Watchdog::add(Entry added, double seconds) {
  CHECK(seconds > 0, "section ", added.name, ": deadline ", seconds, " s");
  constexpr double kForever = 1e9;  // seconds; keeps the clock from wrapping
  added.span = duration_of(std::min(seconds, kForever));
  added.begin = Clock::now();
  added.deadline = added.begin + added.span;
  std::list<Entry> fresh;
  fresh.push_back(std::move(added));
  const std::list<Entry>::iterator entry = fresh.begin();
  bool earlier = false;
  {
    const std::lock_guard lock(mutex_);
    entries_.splice(entries_.end(), fresh);
    earlier = entry->deadline < next_look_;
  }
  if (earlier) changed_.notify_all();
  return Section(this, entry);
}

Watchdog::Section& Watchdog::Section::operator=(Section&& other) noexcept {
  if (this != &other) {
    leave();
    watchdog_ = std::exchange(other.watchdog_, nullptr);
    entry_ = other.entry_;
  }
  return *this;
}

void Watchdog::Section::leave() {
  Watchdog* watchdog = std::exchange(watchdog_, nullptr);
  if (watchdog == nullptr) return;
  std::list<Entry> left;  // freed after the lock is released, which must not wait for the allocator
  const std::lock_guard lock(watchdog->mutex_);
  left.splice(left.end(), watchdog->entries_, entry_);  // the watcher finds out at its next look
}

void Watchdog::Section::renew() {
  if (watchdog_ == nullptr) return;
  const std::lock_guard lock(watchdog_->mutex_);
  entry_->begin = Clock::now();  // the watcher finds out at its next look
  entry_->deadline = entry_->begin + entry_->span;
}

bool Watchdog::waits_for_files(double seconds) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point latest = Clock::now() - duration_of(seconds);
  return std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.for_files && entry.begin < latest; });
}

void Watchdog::pause(double seconds) {
  const std::lock_guard lock(mutex_);
  paused_until_ = std::max(paused_until_, Clock::now() + duration_of(seconds));
}

// While this process or another one waits for files, the time since the last look does not count in other sections.
void Watchdog::pass_over(Clock::duration elapsed) {
  const Clock::time_point now = Clock::now();
  if (now > paused_until_ && std::ranges::none_of(entries_, &Entry::for_files)) return;
  for (Entry& entry : entries_) {
    if (entry.for_files) continue;
    const Clock::duration passed = std::min(elapsed, now - entry.begin);
    entry.begin += passed;
    entry.deadline += passed;
  }
}

Watchdog::Inquiry::Inquiry(Watchdog& watchdog, std::function<std::string()> under_way)
    : watchdog_(watchdog), under_way_(std::move(under_way)) {
  thread_ = thread_without_signals([this] { ask(); });
}

Watchdog::Inquiry::~Inquiry() {
  {
    const std::lock_guard lock(watchdog_.mutex_);
    ends_ = true;
  }
  end_.notify_all();
  thread_.join();
  const std::lock_guard lock(watchdog_.mutex_);
  watchdog_.under_way_[0] = 0;
}

void Watchdog::Inquiry::ask() {
  constexpr std::chrono::seconds kAsk{1};
  std::unique_lock lock(watchdog_.mutex_);
  while (!end_.wait_for(lock, kAsk, [this] { return ends_; })) {
    if (watchdog_.entries_.empty()) continue;
    lock.unlock();
    std::string answer, fault;
    try {
      answer = under_way_();
    } catch (const std::exception& error) {
      fault = error.what();
    }
    lock.lock();
    std::snprintf(watchdog_.under_way_, sizeof watchdog_.under_way_, "%s", answer.c_str());
    std::snprintf(watchdog_.fault_, sizeof watchdog_.fault_, "%s", fault.c_str());
    if (fault.empty()) continue;
    watchdog_.changed_.notify_all();
    return;
  }
}

void Watchdog::watch() {
  constexpr std::chrono::seconds kLook{1};
  std::unique_lock lock(mutex_);
  Clock::time_point looked = Clock::now();
  while (!stopping_) {
    if (entries_.empty()) {
      next_look_ = Clock::time_point::max();
      changed_.wait(lock);
      looked = Clock::now();
      continue;
    }
    const Clock::time_point before = std::exchange(looked, Clock::now());
    pass_over(looked - before);
    const auto first = std::min_element(entries_.begin(), entries_.end(),
                                        [](const Entry& a, const Entry& b) { return a.deadline < b.deadline; });
    const Clock::time_point now = Clock::now();
    if (now >= first->deadline || fault_[0] != 0) {
      std::snprintf(expired_name_, sizeof expired_name_, "%s", first->name.c_str());
      std::snprintf(expired_key_, sizeof expired_key_, "%s", first->key.c_str());
      expired_for_files_ = first->for_files;
      expired_seconds_ = std::chrono::duration<double>(now - first->begin).count();
      expired_ = true;
      lock.unlock();
      end_process();
    }
    next_look_ = std::min<Clock::time_point>(first->deadline, now + kLook);
    changed_.wait_until(lock, next_look_);
    const Clock::duration missed = Clock::now() - next_look_;
    if (missed < kLook) continue;
    looked += missed;
    for (Entry& entry : entries_) {  // the whole process was stopped: that time does not count
      entry.begin += missed;
      entry.deadline += missed;
    }
  }
}

void Watchdog::end_process() {
  expiry_.notify_all();
  constexpr double kLookSeconds = 0.01;
  for (double waited = 0; waited < grace_seconds_ && !reported_; waited += kLookSeconds) {
    usleep(static_cast<useconds_t>(kLookSeconds * 1e6));
  }
  _exit(static_cast<int>(ExitCode::hang));
}

void Watchdog::report() {
  {
    std::unique_lock lock(mutex_);
    expiry_.wait(lock, [this] { return expired_ || stopping_; });
    if (!expired_) return;
  }
  try {
    on_expiry_({expired_name_, expired_key_, expired_seconds_, expired_for_files_, under_way_, fault_});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cannot report that section %s expired: %s\n", expired_name_, error.what());
  }
  reported_ = true;
}

void StepDeadline::add(double step_seconds) {
  if (steps_++ == 0) return;
  if (static_cast<int64_t>(window_.size()) < kWindow) {
    window_.push_back(step_seconds);
  } else {
    window_[static_cast<size_t>(steps_ % kWindow)] = step_seconds;
  }
}

Deadline StepDeadline::deadline() const {
  if (window_.empty()) return setup_;
  return {std::max(minimum_seconds_, factor_ * median_of(window_)), "fault.step_deadline"};
}

}  // namespace shiftron
