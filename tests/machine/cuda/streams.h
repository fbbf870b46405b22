// Streams of the CUDA emulator: how emulated kernels and libraries are put into their order, and which order that is.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "machine/scheduler.h"

namespace shiftron::machine {

// The operation runs after everything that was enqueued in the stream before, at a time that the emulator chooses, on a
// thread of the stream; it can access device memory. Its Error reaches those that wait, as cudaErrorLaunchFailure with
// its text.
void run_in_stream(cudaStream_t stream, std::function<void()> operation);
// The same for a kernel launch, which can be refused, and which returns after the kernel if CUDA_LAUNCH_BLOCKING is 1.
cudaError_t launch_in_stream(const char* kernel, cudaStream_t stream, std::function<void()> operation);

// Streams, events and allocations that nobody gave back yet, by what they are.
std::map<std::string, int64_t> runtime_objects();

// Returns when all streams that this thread made are through, whatever became of their operations; ends the process
// where they do not get there.
void wait_for_device(const std::string& why) noexcept;

// CUDA loads code when it is first used, for which it may wait for the device. Whether it does here; at first not, as
// whatever a host waits for hides what it should have waited for.
void let_loading_wait(bool waits);
void load_code(const std::string& name);  // used by the calling thread

// Bytes of the second-level cache that the device says it has.
int second_level_cache();
void set_second_level_cache(int bytes);

// In an operation that gave its turn and has it again: device memory, which may have been closed since, is open to it.
void open_memory();

// From now on a thread of the emulator runs, after some milliseconds, what no host runs: peers in other
// processes may wait for it.
void help_streams();

inline constexpr int64_t kUsualMemory = int64_t{80} << 30;  // bytes of the device, as an H100's

// Restarts the runtime, in this order, with `memory` bytes of the device; all streams, events and memory are lost. At
// first: SHIFTRON_MACHINE_ORDER (eager, random, late, uneven), SHIFTRON_MACHINE_SEED and SHIFTRON_MACHINE_MEMORY of the
// environment, otherwise late and the usual memory. A host has SHIFTRON_MACHINE_DEVICES GPUs, otherwise 8, which differ
// only in their identity; a process sees all of them, or CUDA_VISIBLE_DEVICES, which also numbers them.
void restart_device(const MachineOptions& options, int64_t memory = kUsualMemory);
// What a library takes of the device for itself: false where there is not so much.
bool take_memory(size_t bytes);
void give_memory(size_t bytes);
int gpu_of_thread();  // its device's number on the host, whatever the process calls it

// While it lives the calling thread is a rank with a CUDA_VISIBLE_DEVICES of its own.
class VisibleDevices {
 public:
  explicit VisibleDevices(const std::string& names);
  ~VisibleDevices();
  VisibleDevices(const VisibleDevices&) = delete;
  VisibleDevices& operator=(const VisibleDevices&) = delete;
};

}  // namespace shiftron::machine
