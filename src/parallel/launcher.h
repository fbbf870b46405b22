// What the environment says of who launched this process, before MPI reads it.
#pragma once

namespace shiftron {

// Whether no rank can be on another host, by what mpirun tells; a process that nobody launched is the only one.
bool is_on_one_host();

// Whether this process is the only one of its job, because no launcher started it, or srun started it (or the shell
// before it) as the only task of a step. Such a process does not start MPI.
bool is_started_alone();

}  // namespace shiftron
