// How threads wait for others of their team, where several programs share a machine.
#pragma once

namespace shiftron::cli {

// Waiting threads of OpenMP go to sleep early, so that programs that share the processors do not use up each other's
// time. OpenMP reads this when it is loaded: unless the user has set GOMP_SPINCOUNT or OMP_WAIT_POLICY, the program
// replaces itself by itself with GOMP_SPINCOUNT set. Call first in main(). Returns where nothing is to be done or it
// cannot be done.
void make_waiting_threads_sleep(char** arguments);

}  // namespace shiftron::cli
