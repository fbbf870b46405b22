// Which memory the microbatches of a stage reuse: a pure function of its actions.
#pragma once

#include <map>
#include <vector>

#include "parallel/pipeline.h"

namespace shiftron {

// An arena holds one microbatch of a chunk at a time, from its first action up to its last. All chunks share the
// arenas, so there are as many as are in use at one time. An arena that has held the chunk before is preferred, and of
// these the one that has been free the longest.
struct ArenaAssignment {
  std::vector<std::vector<int>> arena_of;  // [chunks][microbatches]
  std::vector<std::vector<int>> chunks;    // [arenas]: which chunks each holds
};
ArenaAssignment assign_arenas(const std::vector<Action>& actions, int microbatches);

// Slots for the rows that another stage sends forward. A message has its slot from the time when the message before it
// is taken, because its receive is posted then, up to the last action of its microbatch. slot_of: in order of arrival.
struct SlotAssignment {
  std::vector<int> slot_of;
  int slots = 0;
};
SlotAssignment assign_slots(const std::vector<Action>& actions, int sender);

// Received gradients of a channel that are in use: the current one, and the one before it, which may still be read.
inline constexpr int kGradientsInUse = 2;

// What a stage needs in a training step.
struct StageMemory {
  std::vector<std::vector<int>> arenas;  // [arenas]: chunks that each holds
  std::vector<int> first_arena;          // [chunks]: arena of the first microbatch; no two chunks share it
  std::map<int, int> slots;              // by stage that sends forward
};
// Number of arenas with p stages, on stage s, if there are enough microbatches: 1f1b p − s; gpipe one per microbatch;
// interleaved 2(p − s − 1) + p(chunks − 1) + 1 for parts of a stage; zb-h1 p; zb-v 2p for halves of a stage. `delay`
// adds to these.
StageMemory stage_memory(const Schedule& schedule, int stages, int stage, int microbatches);
// For forward only: an arena for each chunk.
StageMemory forward_stage_memory(const Schedule& schedule, int stages, int stage);

}  // namespace shiftron
