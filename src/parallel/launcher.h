// What the environment says about the launcher of this process, before MPI reads it.
#pragma once

#include <string>

namespace shiftron {

// Whether all ranks are on this host, according to mpirun; a process without a launcher is the only one.
bool is_on_one_host();

// The processes that the launcher says it has started, including this one.
struct LaunchedTasks {
  int count = 1;       // 1 if nothing is stated
  int rank = 0;        // of this one, as far as it is stated
  std::string source;  // "PMI_SIZE=4"
};

// Call before MPI_Init. Open MPI's own mpirun takes precedence; otherwise srun's step (a batch script's shell is not
// one), PMI, MVAPICH2, jsrun, Flux and PMIx are read, and the largest number counts.
LaunchedTasks launched_tasks();

// Throws Error(bad_input) if MPI sees fewer ranks: each process would do all the work alone. The first process reports.
void require_all_tasks(const LaunchedTasks& launched, int ranks);

// Whether this process is the only one of its job, because no launcher started it, or srun started it (or the shell
// that started it) as the only task of a step. Such a process does not start MPI. Call before MPI starts, which sets
// such variables itself.
bool is_started_without_launcher();

}  // namespace shiftron
