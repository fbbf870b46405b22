// What a thread of the host has asked of the emulated runtime: what it waited for, allocated and created.
#pragma once

#include <cstdint>
#include <iosfwd>

namespace shiftron::machine {

struct Counts {
  int64_t event_waits = 0;         // cudaEventSynchronize
  int64_t stream_waits = 0;        // cudaStreamSynchronize
  int64_t device_waits = 0;        // cudaDeviceSynchronize
  int64_t device_allocations = 0;  // cudaMalloc
  int64_t pinned_allocations = 0;  // cudaMallocHost
  int64_t frees = 0;               // of either; each waits for the device too
  int64_t streams = 0, events = 0;

  Counts operator-(const Counts& before) const;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& counts);

Counts& counts();  // of the calling thread, since it began

}  // namespace shiftron::machine
