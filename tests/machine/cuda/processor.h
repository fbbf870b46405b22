// Executes grids of CUDA kernels on the host: every thread is a fiber, blocks come one after another, warps in an order
// that an adversary chooses. What CUDA leaves undefined is a fault, Error(crash) with kernel, block, threads and the
// places where they met: threads at different barriers, or ended before one; a lane outside of its mask, lanes that
// meet at different places or with different masks, a shuffle from outside of the mask; writes beyond a shared array,
// more than 48 KiB of those, bytes of a launch beyond 48 KiB that its kernel was not allowed, blocks of more than 1,024
// threads; a thread that ends without having waited for the kernels before its own, although it may run at the same
// time. ThreadSanitizer learns of the order that barriers make within a block, and of none between blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace shiftron::machine {

enum class WarpOrder {
  forward,  // each thread in turn runs to its next meeting
  reverse,
  random,
  stay,   // a warp runs as long as it can
  mixed,  // each block in one of these
};

struct ProcessorOptions {
  WarpOrder order = WarpOrder::mixed;
  uint64_t seed = 0;
};

// Of grids from now on. At first what SHIFTRON_WARPS in the environment says, for example stay:7.
void set_processor_options(const ProcessorOptions& options);
ProcessorOptions processor_options();

// How many grids of each kernel were launched since the last clear_launches(), by the name that its launch states.
std::map<std::string, int64_t> launches();
void clear_launches();

// Calls thread_body in every thread; faults print `name`; blocks have `shared` bytes of the launch. Without an
// allowance these and the kernel's arrays have 48 KiB together, otherwise 227. `early`: see Launch.
void execute_grid(const char* name, int64_t grid_x, int64_t grid_y, int block, const std::function<void()>& thread_body,
                  int64_t shared = 0, bool allowed = true, bool early = false);

// Blocks of the kernel may be given so many bytes of a launch.
void allow_shared(const void* kernel, int64_t bytes);

}  // namespace shiftron::machine
