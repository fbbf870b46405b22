// The one flag that a signal handler can reach.
#include "train/stop_signal.h"

#include <csignal>
#include <initializer_list>

namespace shiftron {
namespace {

volatile std::sig_atomic_t stop_requested = 0;  // a handler sees nothing but globals

void request_stop(int signal) {
  stop_requested = 1;
  if (signal != SIGUSR1) std::signal(signal, SIG_DFL);  // the second Ctrl-C ends it
}

}  // namespace

StopSignal::StopSignal(bool interactive) {
  stop_requested = 0;
  std::signal(SIGUSR1, request_stop);
  if (!interactive) return;
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
}

StopSignal::~StopSignal() {
  for (const int signal : {SIGUSR1, SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
}

bool StopSignal::requested() const { return stop_requested != 0; }

}  // namespace shiftron
