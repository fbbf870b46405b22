// Whether what a run plans has room on its devices: asked before anything of it is allocated.
#pragma once

#include <string>

#include "core/ledger.h"
#include "core/log.h"
#include "core/stream.h"
#include "parallel/control_plane.h"
#include "parallel/layout.h"
#include "train/run_config.h"

namespace shiftron {

// Lines of a plan: what each category takes.
std::string memory_table(const Ledger& planned);

// What a rank's plan has to fit into, beside what `ranks` − 1 others of its host plan there.
struct RoomOfRank {
  int64_t available = 0, total = 0, planned_beside = 0;  // bytes
  int ranks = 1;
};

// Called by all ranks, each with its own plan and room. Where one does not fit, all of them end with bad_input, or with
// crash where all would fit while nobody else held any, and the first one tells by how much it does not, of the rank
// that lacks most, and what changes would take less.
void require_room(ControlPlane& world, const RunConfig& config, const ParallelLayout& layout, int threads,
                  const Ledger& planned, const RoomOfRank& room);

// The same of this rank's GPU as it is now, divided among `ranks_of_memory`; the log tells both, and the bytes that are
// free are returned. On a CPU of its host, whose ranks need room together, where that is known; 0 is returned.
int64_t require_room_on_device(ControlPlane& world, const RunConfig& config, const ParallelLayout& layout,
                               int ranks_of_memory, const Stream& stream, const Ledger& planned, Log& log);

// Behind the making of groups, before which so many bytes were `free`: the log tells what they took. Where the plan,
// without its reserve, has no room any more, all ranks end with bad_input, as above.
void require_room_beside_groups(ControlPlane& world, const RunConfig& config, int ranks_of_memory, int64_t free,
                                const Stream& stream, const Ledger& planned, Log& log);

}  // namespace shiftron
