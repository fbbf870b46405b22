// A process that can create only a few more threads, as under a memory limit. For a test's child process.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace shiftron {

// Of stacks of 256 MiB `threads` fit; what else is small has room.
inline void leave_room_for_threads(int threads) {
  constexpr size_t kStack = size_t{256} << 20;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_setattr_default_np(&attributes);
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const size_t bytes =
      pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + static_cast<size_t>(threads) * kStack + kStack / 2;
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
}

}  // namespace shiftron
