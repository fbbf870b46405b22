// Signals that ask a run to save and stop.
#pragma once

namespace shiftron {

// While it lives SIGUSR1 (and, with `interactive`, SIGINT and SIGTERM) only sets a flag.
class StopSignal {
 public:
  explicit StopSignal(bool interactive);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  bool requested() const;
};

}  // namespace shiftron
