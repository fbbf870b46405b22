// Where the time of a run's kernels went, compared with what the machine could do: a roofline from the ledger.
#pragma once

#include <string>
#include <vector>

#include "core/ledger.h"

namespace shiftron {

// The fastest of repeated measurements of one rate, or NaN if they differ by more than 10 %: then other work has run at
// the same time, and a share of the rate would mean nothing.
double credible_peak(const std::vector<double>& measured);

struct MachineRates {
  double operations = 0;  // per second: products of matrices; NaN: not known, see credible_peak()
  double bytes = 0;       // per second: copying, read and written bytes together
};

// One line per kernel, the slowest first: calls and milliseconds per step, share of the time of all kernels, GB/s,
// GFLOP/s, and the percentage that it reached of the machine's rates (the higher of the two). Then one line for each
// operation of a group whose device times it: calls and milliseconds per step, and for how many of these kernels waited
// for it. `ledger` holds `steps` timed steps; `step_seconds`: total time of one step.
std::string profile_table(const Ledger& ledger, int64_t steps, double step_seconds, const MachineRates& rates);

}  // namespace shiftron
