// Many independent tasks on threads that are started for them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/thread_without_signals.h"

namespace shiftron {

// Calls body(task) for every task below `tasks`, on at most `threads` threads including the caller's; on fewer if no
// more can be started. Results must not depend on which thread runs a task. body must not throw.
template <typename Body>
void share_tasks(int64_t tasks, int64_t threads, const Body& body) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t task = next++; task < tasks; task = next++) body(task);
  };
  const int64_t helpers = std::max<int64_t>(0, std::min(tasks, threads) - 1);
  std::vector<std::thread> started = threads_without_signals(static_cast<size_t>(helpers), work);
  work();
  for (std::thread& thread : started) thread.join();
}

}  // namespace shiftron
