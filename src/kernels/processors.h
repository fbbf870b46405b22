// The processors available for computation, by the system's numbers.
#pragma once

#include <vector>

namespace shiftron {

// Processors that this process may use, ascending, even if OMP_PROC_BIND has bound the calling thread to some of them.
std::vector<int> processors_of_process();

// Processors that it could use if it were not bound to any: all of the host's, or those of its cpuset.
std::vector<int> processors_of_host();

// Moves the threads of this process that have the calling thread's affinity, and threads that they start later, to
// these processors. Returns false and changes nothing if the system refuses or OMP_PROC_BIND already binds threads.
bool bind_process(const std::vector<int>& processors);

}  // namespace shiftron
