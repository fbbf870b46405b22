// What the environment says of who launched this process, before MPI reads it.
#pragma once

#include <string>

namespace shiftron {

// Whether no rank can be on another host, by what mpirun tells; a process that nobody launched is the only one.
bool is_on_one_host();

// How many processes the launcher says that it has started, this one among them.
struct LaunchedTasks {
  int count = 1;       // 1 where nothing says so
  int rank = 0;        // of this one, as far as it is stated
  std::string source;  // "PMI_SIZE=4"
};

// Read before MPI_Init. Open MPI's own mpirun has the last word; else srun's step (but a batch script's shell is none),
// PMI, MVAPICH2, jsrun, Flux and PMIx are asked, and the largest number counts.
LaunchedTasks launched_tasks();

// Throws Error(bad_input) where MPI sees fewer ranks: each process would do all the work alone. The first process
// reports.
void require_all_tasks(const LaunchedTasks& launched, int ranks);

// Whether this process is the only one of its job, because no launcher started it, or srun started it (or the shell
// before it) as the only task of a step. Such a process does not start MPI. Ask before MPI starts: it sets such
// variables itself.
bool is_started_alone();

}  // namespace shiftron
