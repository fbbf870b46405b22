// Signals that ask a run to save and stop.
#pragma once

#include <csignal>
#include <utility>
#include <vector>

namespace shiftron {

// From here on SIGUSR1 waits for a StopSignal: a launcher may send it at any time, MPI takes its time to begin. Before
// the first thread.
void hold_stop_signal();

// While it lives SIGUSR1, SIGTERM and SIGHUP (and, with `interactive`, SIGINT) only set a flag; a second SIGINT or
// SIGTERM ends the process. One but SIGUSR1 that is ignored, as under nohup, stays ignored. The thread that makes it,
// and those it starts, never run a handler: products of oneDNN 2.6 point the stack pointer into their heap buffers,
// where the kernel's signal frame would overwrite what lies below. Made before the first product and used by the thread
// that makes it.
class StopSignal {
 public:
  explicit StopSignal(bool interactive);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  bool requested() const;  // takes the signals that wait

 private:
  void take_over(int signal);
  sigset_t signals_, mask_before_;
  std::vector<std::pair<int, struct sigaction>> before_;  // of each signal taken over
};

}  // namespace shiftron
