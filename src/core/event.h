// Event: a place in the work of a stream that other streams, or the host, wait for.
#pragma once

#include <chrono>
#include <memory>

#include "core/stream.h"

namespace shiftron {

class Event {
 public:
  // Behind everything given to the stream so far; again: forgets the place before. `timed`: for seconds_since().
  void record(Stream& stream, bool timed = false);
  // Neither wait does anything before the first record().
  void wait(Stream& stream) const;  // what is given to the stream from now on is done behind it; returns at once
  void wait_on_host() const;        // returns when it is reached; throws what went wrong before it
  double seconds_since(const Event& earlier) const;  // both timed and reached, of one device

 private:
  std::shared_ptr<Mark> mark_;
  std::chrono::steady_clock::time_point time_;  // without a queue
};

// Returns when all that the stream was given is done; throws what went wrong with any of it.
void finish(Stream& stream);

}  // namespace shiftron
