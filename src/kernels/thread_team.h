// Threads that compute together. Waiting threads yield their processor, and sleep after 0.2 ms, so that jobs can share
// a machine: two jobs at once take twice as long, not ten times.
#pragma once

namespace shiftron {

using TeamBody = void (*)(const void* body, int thread, int threads);

// Calls call(body, thread, threads) once for every thread below `threads`, in parallel; the caller is thread 0. Returns
// when all calls have ended. Nested calls run on one thread only. `call` must not throw. Each calling thread has its
// own helpers, which are started when they are first needed and kept until that thread ends. Throws Error(bad_input) if
// they cannot be started.
void run_in_team(int threads, TeamBody call, const void* body);

template <typename Body>  // body(thread, threads)
void in_team(int threads, const Body& body) {
  run_in_team(
      threads, [](const void* of, int thread, int all) { (*static_cast<const Body*>(of))(thread, all); }, &body);
}

// The calling thread's number in its team, and the size of that team; 0 and 1 outside a team.
struct TeamPlace {
  int thread = 0, threads = 1;
  bool in_team = false;
};
TeamPlace place_in_team();

// Within a team: returns once all of its threads have called this.
void wait_for_team();

// Starts this thread's helpers and checks that each has enough stack. Throws Error(bad_input) if not.
void start_threads(int threads);

}  // namespace shiftron
