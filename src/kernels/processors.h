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

// Threads that OpenMP gives this process at once, by OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS.
int most_threads();

// Starts so many, which this thread's computations then have, whatever OMP_DYNAMIC says. Throws Error(bad_input) where
// OpenMP gives fewer, or each too small a stack; where it cannot start them it ends the process, which then says why,
// with the code of bad_input.
void start_threads(int threads);

}  // namespace shiftron
