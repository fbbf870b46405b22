// Event: a point in the work of a stream that other streams, or the host, can wait for.
#pragma once

#include <chrono>
#include <memory>

#include "core/stream.h"

namespace shiftron {

class Event {
 public:
  // The point after everything enqueued on the stream so far; a second call replaces the first. `timed`: for
  // seconds_since().
  void record(Stream& stream, bool timed = false);
  // Neither wait does anything before the first record().
  void wait(Stream& stream) const;                   // work enqueued from now on runs after the event; returns at once
  void wait_on_host() const;                         // returns when it is reached; throws errors of the work before it
  double seconds_since(const Event& earlier) const;  // both timed and reached, on one device

 private:
  std::shared_ptr<Mark> mark_;
  std::chrono::steady_clock::time_point time_;  // without a queue
};

// Returns when all work of the stream is done; throws what any of it threw.
void finish(Stream& stream);

}  // namespace shiftron
