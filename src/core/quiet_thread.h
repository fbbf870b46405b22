// Threads on which no signal handler runs: the program's signals belong to its own threads.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace shiftron {

template <typename Body>
std::thread quiet_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread begins with the mask of the one that makes it
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace shiftron
