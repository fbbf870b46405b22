// Replaces a tracing tool: the NVTX ranges that a thread has begun. Programs that call this enable it.
#pragma once

#include <string>
#include <vector>

namespace shiftron::machine {

// Of the calling thread since the last call, in their order; two spaces before a name for each range around it.
std::vector<std::string> take_ranges();
int open_ranges();  // of the calling thread; below 0 where more ended than began

}  // namespace shiftron::machine
