// Signals that ask a run to save and stop.
#pragma once

#include <csignal>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace shiftron {

// Blocks the stop signals until a StopSignal takes them: a launcher may send one while MPI starts or ends. Call it
// before the first thread starts. Without a launcher SIGINT stays unblocked, so that Ctrl-C ends the process at once
// until training begins.
void block_stop_signals(bool launched);

// While it lives, SIGTERM, SIGHUP, SIGXCPU, SIGUSR1 and SIGINT only set a flag, however often they arrive: launchers
// and batch systems send them several times. Without a launcher, a second SIGINT ends the process at once. A signal
// that is ignored at the start, as under nohup, stays ignored (SIGUSR1 never is). The thread that constructs it, and
// the threads it starts, never run a handler: oneDNN 2.6 products point the stack pointer into their heap buffers,
// where the kernel's signal frame would overwrite the data below it. Construct it before the first product, and use it
// in that thread.
class StopSignal {
 public:
  explicit StopSignal(bool launched);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  bool requested() const;  // takes the pending signals

 private:
  void take_over(int signal);
  bool launched_;
  sigset_t signals_, mask_before_;
  std::vector<std::pair<int, struct sigaction>> before_;  // of each signal taken over
  std::stop_source end_;
  std::thread interrupts_;  // without a launcher: runs the handler of SIGINT at once
};

}  // namespace shiftron
