// SaveClock: how often long work saves its state.
#pragma once

#include <algorithm>
#include <chrono>

namespace shiftron {

// For one thread. Saving takes at most two percent of the time, however slow the disk is.
class SaveClock {
 public:
  explicit SaveClock(double least_seconds) : least_(least_seconds), wait_(least_seconds) {}
  bool is_due() const { return seconds_since(last_) >= wait_; }
  template <typename Save>
  void run(const Save& save) {
    const auto begin = Clock::now();
    save();
    last_ = Clock::now();
    if (least_ > 0) wait_ = std::max(least_, kWaitsPerSave * std::chrono::duration<double>(last_ - begin).count());
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kWaitsPerSave = 50;
  static double seconds_since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  }
  double least_, wait_;  // seconds between two saves
  Clock::time_point last_ = Clock::now();
};

}  // namespace shiftron
