// Checks that what a run plans fits on its devices, before any of it is allocated.
#pragma once

#include <string>

#include "config/run_config.h"
#include "core/ledger.h"
#include "core/log.h"
#include "core/stream.h"
#include "parallel/control_plane.h"
#include "parallel/layout.h"

namespace shiftron {

// The plan as text: one line per category.
std::string memory_table(const Ledger& planned);

// The memory into which a rank's plan must fit, together with the plans of the `ranks` − 1 other ranks of its host.
struct RankMemory {
  int64_t available = 0, total = 0, planned_by_others = 0;  // bytes
  int ranks = 1;
};

// Every rank calls it with its own plan and room. If a plan does not fit, all ranks throw: bad_input, or crash if all
// plans would fit once others free their memory. The message describes the rank that lacks most: how much is missing,
// and which changes would need less.
void require_memory_for_plan(ControlPlane& world, const RunConfig& config, const ParallelLayout& layout, int threads,
                             const Ledger& planned, const RankMemory& room);

// The same for this rank's GPU as it is now, whose memory is divided among `ranks_of_memory`. Logs the plan and the
// free memory, and returns the free bytes. On a CPU it checks the host's memory, which all its ranks need together, if
// that is known, and returns 0.
int64_t require_device_memory(ControlPlane& world, const RunConfig& config, const ParallelLayout& layout,
                              int ranks_of_memory, const Stream& stream, const Ledger& planned, Log& log);

// Call it after the groups were made; `free`: bytes that were free before. Logs how many they took. If the plan without
// its reserve no longer fits, all ranks throw bad_input.
void require_memory_beyond_groups(ControlPlane& world, const RunConfig& config, int ranks_of_memory, int64_t free,
                                  const Stream& stream, const Ledger& planned, Log& log);

}  // namespace shiftron
