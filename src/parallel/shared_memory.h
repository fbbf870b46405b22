// How ranks of one host exchange bytes through the system: what it allows, and what is reported when it fails.
#pragma once

namespace shiftron {

// Whether this process may read the memory of another process of the same user; tries it on a child. MPI copies
// messages this way. A container's seccomp filter, Yama's ptrace_scope of 2 or 3, or a security module may forbid it;
// MPI then prints a line for every message. Call before MPI starts.
bool may_read_other_processes();

// From now on, if the process touches shared memory in /dev/shm for which the system has no page left, it reports this
// and ends with code 70 (crash). Any other SIGBUS ends the process as it does by default.
void report_full_shared_memory();

}  // namespace shiftron
