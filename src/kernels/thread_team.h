// Threads that compute together. While they wait they yield their processor, so that jobs of one machine share it: two
// jobs at once take twice as long, not ten times.
#pragma once

namespace shiftron {

using TeamBody = void (*)(const void* body, int thread, int threads);

// Calls call(body, thread, threads) once for every thread below `threads`, at the same time; the caller is thread 0.
// Returns when all calls have ended. Within such a call it calls for one thread alone. No call may throw. Each thread
// that calls this has helpers of its own, which it starts when it first needs them and keeps until it ends.
// Throws Error(bad_input) where they cannot be started.
void run_in_team(int threads, TeamBody call, const void* body);

template <typename Body>  // body(thread, threads)
void in_team(int threads, const Body& body) {
  run_in_team(
      threads, [](const void* of, int thread, int all) { (*static_cast<const Body*>(of))(thread, all); }, &body);
}

// Of the calling thread: its place in the team that it computes in, and that team's size; outside of one 0 and 1.
struct TeamPlace {
  int thread = 0, threads = 1;
  bool in_team = false;
};
TeamPlace place_in_team();

// Within a team: returns once all of its threads have called it.
void wait_for_team();

// Starts this thread's helpers, and sees that each has stack enough. Throws Error(bad_input) where it has not.
void start_threads(int threads);

}  // namespace shiftron
