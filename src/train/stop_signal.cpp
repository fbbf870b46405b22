// Blocked where kernels run, asked for once a step; the handler serves threads of MPI that leave the signals unblocked.
#include "train/stop_signal.h"

#include <pthread.h>

#include <ctime>

namespace shiftron {
namespace {

volatile std::sig_atomic_t stop_requested = 0;  // a handler sees nothing but globals

// A closed terminal may send several SIGHUP, a launcher several SIGUSR1.
bool is_typed(int signal) {
  return signal == SIGINT || signal == SIGTERM;
}

void request_stop(int signal) {
  stop_requested = 1;
  if (is_typed(signal)) std::signal(signal, SIG_DFL);  // the second Ctrl-C ends it
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// One of `signals` that waits for this thread or process; 0 or less = none.
int take(const sigset_t& signals) {
  const timespec now{};
  return sigtimedwait(&signals, nullptr, &now);
}

}  // namespace

void hold_stop_signal() {
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

StopSignal::StopSignal(bool interactive) {
  stop_requested = 0;
  sigemptyset(&signals_);
  take_over(SIGUSR1);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if ((interactive || signal != SIGINT) && !is_ignored(signal)) take_over(signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
}

void StopSignal::take_over(int signal) {
  sigaddset(&signals_, signal);
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, &before_.emplace_back(signal, action).second);
}

StopSignal::~StopSignal() {
  while (take(signals_) > 0) {  // too late to stop: no reason to end in another way
  }
  for (const auto& [signal, action] : before_) sigaction(signal, &action, nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

bool StopSignal::requested() const {
  for (int signal = take(signals_); signal > 0; signal = take(signals_)) {
    request_stop(signal);
    if (!is_typed(signal)) continue;
    sigset_t second;  // ends the process: what its frame overwrites does not matter
    sigemptyset(&second);
    sigaddset(&second, signal);
    pthread_sigmask(SIG_UNBLOCK, &second, nullptr);
    break;
  }
  return stop_requested != 0;
}

}  // namespace shiftron
