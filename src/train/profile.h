// Where the time of a run's kernels went, against what the machine could do: a roofline from the ledger.
#pragma once

#include <string>

#include "core/ledger.h"

namespace shiftron {

struct MachineRates {
  double operations = 0;  // per second: products of matrices
  double bytes = 0;       // per second: copying, read and written bytes together
};

// One line a kernel, the slowest first: calls and milliseconds a step, share of the time of all kernels, GB/s, GFLOP/s,
// and the share of the higher of the two rates that it reached. Then one line for each operation of a group whose
// device times it: calls and milliseconds a step, and for how many of these kernels waited for it. `ledger` holds
// `steps` timed steps; `step_seconds`: what one took in all.
std::string profile_table(const Ledger& ledger, int64_t steps, double step_seconds, const MachineRates& rates);

}  // namespace shiftron
