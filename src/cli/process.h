// What a command that computes needs of its process: MPI, threads, agreement on the configuration, the last word.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/host.h"
#include "parallel/host_communicator.h"
#include "train/run_config.h"

namespace shiftron::cli {

// Of a job that a command is told of.
inline constexpr double kMostRanks = 1'000'000;

// Cores of the affinity mask / ranks that share it, at least 1; `wanted` > 0 wins.
int thread_count(int wanted, int local_ranks);

// Of this rank; `threads` > 0 as in thread_count().
HostShare share_of(const MpiSession& session, int threads);

// A reader that leaves (`| head`, a closed terminal) and a limit of file sizes (`ulimit -f`) are errors of a write and end
// nothing by themselves. For commands whose work is worth more than what they print.
void outlive_failing_writes();

// Rank 0 runs `check`; its Error is thrown by every rank, with the message on rank 0 alone.
void agree(ControlPlane& world, const std::function<void()>& check);

}  // namespace shiftron::cli
