// Threads that run kernels block the signals and poll for them once a step. The handler runs in a thread of its own,
// and in MPI's threads that leave the signals unblocked.
#include "train/stop_signal.h"

#include <pthread.h>

#include <array>
#include <condition_variable>
#include <ctime>
#include <mutex>

#include "core/thread_without_signals.h"

namespace shiftron {
namespace {

constexpr std::array kStopSignals{SIGUSR1, SIGTERM, SIGHUP, SIGXCPU, SIGINT};

volatile std::sig_atomic_t stop_requested = 0;  // a handler can only use globals

void request_stop(int) {
  stop_requested = 1;
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return signal != SIGUSR1 && sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// One of `signals` that is pending for this thread or process; 0 or less = none.
int take(const sigset_t& signals) {
  const timespec now{};
  return sigtimedwait(&signals, nullptr, &now);
}

// A thread that runs no kernel, so it may run a handler.
void take_interrupts(const std::stop_token& end) {
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait(lock, end, [] { return false; });
}

}  // namespace

void block_stop_signals(bool launched) {
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : kStopSignals) {
    if ((launched || signal != SIGINT) && !is_ignored(signal)) sigaddset(&held, signal);
  }
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

StopSignal::StopSignal(bool launched) : launched_(launched) {
  if (!launched_) interrupts_ = thread_without_signals([end = end_.get_token()] { take_interrupts(end); });
  stop_requested = 0;
  sigemptyset(&signals_);
  for (const int signal : kStopSignals) {
    if (!is_ignored(signal)) take_over(signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
}

void StopSignal::take_over(int signal) {
  sigaddset(&signals_, signal);
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;
  if (signal == SIGINT && !launched_) action.sa_flags |= SA_RESETHAND;  // the second Ctrl-C ends the process
  sigaction(signal, &action, &before_.emplace_back(signal, action).second);
}

StopSignal::~StopSignal() {
  end_.request_stop();
  if (interrupts_.joinable()) interrupts_.join();
  while (take(signals_) > 0) {  // too late to stop: they must not end the process in another way
  }
  for (const auto& [signal, action] : before_) sigaction(signal, &action, nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

bool StopSignal::requested() const {
  while (take(signals_) > 0) stop_requested = 1;
  return stop_requested != 0;
}

}  // namespace shiftron
