// Threads on which no signal handler runs: the program's signals belong to its own threads.
#pragma once

#include <signal.h>

#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"

namespace shiftron {

// Throws Error(bad_input) for an exception of std::thread.
[[noreturn]] inline void throw_thread_start_error(const std::system_error& error) {
  throw_bad_input("cannot start a thread (", error.code().message(),
                  "): a thread or memory limit was reached; raise it (ulimit -u, ulimit -v, the job's limits), or "
                  "start fewer ranks, or lower device.threads, on this host");
}

// Throws Error(bad_input) if no thread can be started.
template <typename Body>
std::thread thread_without_signals(Body body) {
  struct AllBlocked {  // a thread inherits the mask of the thread that creates it
    sigset_t all, before;
    AllBlocked() {
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~AllBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  };
  try {
    const AllBlocked blocked;
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw_thread_start_error(error);
  }
}

// `count` threads, or as many as can be started.
template <typename Body>
std::vector<std::thread> threads_without_signals(size_t count, const Body& body) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    while (threads.size() < count) threads.push_back(thread_without_signals(body));
  } catch (const std::exception&) {  // those that exist do the work
  }
  return threads;
}

}  // namespace shiftron
