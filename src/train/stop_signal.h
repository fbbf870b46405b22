// Signals that ask a run to save and stop.
#pragma once

#include <csignal>

namespace shiftron {

// While it lives SIGUSR1 (and, with `interactive`, SIGINT and SIGTERM) only sets a flag; a second one of the interactive
// signals ends the process. The thread that makes it, and those it starts, never run a handler: products of oneDNN 2.6
// point the stack pointer into their heap buffers, where the kernel's signal frame would overwrite what lies below.
// Made before the first product and used by the thread that makes it.
class StopSignal {
 public:
  explicit StopSignal(bool interactive);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  bool requested() const;  // takes the signals that wait

 private:
  sigset_t signals_, mask_before_;
};

}  // namespace shiftron
