// Streams of the machine that stands in for CUDA: how what stands in for kernels and libraries gets into their order,
// and which order that is.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "machine/scheduler.h"

namespace shiftron::machine {

// The operation runs behind all that the stream was given before, when the machine pleases, on a thread of the stream;
// device memory is open to it. An Error of it reaches whoever waits, as cudaErrorLaunchFailure with its text.
void run_in_stream(cudaStream_t stream, std::function<void()> operation);

inline constexpr int64_t kUsualMemory = int64_t{8} << 30;  // bytes of the device

// The runtime begins anew, in this order, with `memory` bytes of the device; streams, events and memory are all gone.
// At first: SHIFTRON_MACHINE_ORDER (eager, random, late, uneven), SHIFTRON_MACHINE_SEED and SHIFTRON_MACHINE_MEMORY of
// the environment, else late and the usual memory.
void restart_device(const MachineOptions& options, int64_t memory = kUsualMemory);

}  // namespace shiftron::machine
