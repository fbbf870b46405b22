// Which processors there are to compute on, by the numbers that the system gives them.
#pragma once

#include <vector>

namespace shiftron {

// Those that this process may use, ascending, even where OMP_PROC_BIND has bound the calling thread to some of them.
std::vector<int> processors_of_process();

// Those that it could use were it bound to none: all of the host's, or of the cpuset that holds it.
std::vector<int> processors_of_host();

// Binds the threads of this process that have the calling thread's processors to others, and those that they will
// start. False where the system refuses, or where OMP_PROC_BIND binds threads already; then nothing changes.
bool bind_process(const std::vector<int>& processors);

}  // namespace shiftron
