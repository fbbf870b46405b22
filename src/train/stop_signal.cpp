// Blocked where kernels run, asked for once a step; the handler serves threads of MPI that leave the signals unblocked.
#include "train/stop_signal.h"

#include <pthread.h>

#include <ctime>
#include <initializer_list>

namespace shiftron {
namespace {

volatile std::sig_atomic_t stop_requested = 0;  // a handler sees nothing but globals

void request_stop(int signal) {
  stop_requested = 1;
  if (signal != SIGUSR1) std::signal(signal, SIG_DFL);  // the second Ctrl-C ends it
}

// One of `signals` that waits for this thread or process; 0 or less = none.
int take(const sigset_t& signals) {
  const timespec now{};
  return sigtimedwait(&signals, nullptr, &now);
}

}  // namespace

StopSignal::StopSignal(bool interactive) {
  stop_requested = 0;
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGUSR1);
  if (interactive) {
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
  std::signal(SIGUSR1, request_stop);
  if (!interactive) return;
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
}

StopSignal::~StopSignal() {
  while (take(signals_) > 0) {  // too late to stop: no reason to end in another way
  }
  for (const int signal : {SIGUSR1, SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

bool StopSignal::requested() const {
  for (int signal = take(signals_); signal > 0; signal = take(signals_)) {
    request_stop(signal);
    if (signal == SIGUSR1) continue;
    sigset_t second;  // ends the process: what its frame overwrites does not matter
    sigemptyset(&second);
    sigaddset(&second, signal);
    pthread_sigmask(SIG_UNBLOCK, &second, nullptr);
    break;
  }
  return stop_requested != 0;
}

}  // namespace shiftron
