// Which memory the microbatches of a stage use one after the other: a pure function of its actions.
#pragma once

#include <map>
#include <vector>

#include "parallel/pipeline.h"

namespace shiftron {

// An arena holds one microbatch of a chunk at a time, from its first action up to its last. All chunks share the arenas,
// so there are as many as are held at one time; one that has held the chunk before is preferred, and of these the one
// that is free for the longest.
struct ArenaAssignment {
  std::vector<std::vector<int>> arena_of;  // [chunks][microbatches]
  std::vector<std::vector<int>> chunks;    // [arenas]: which chunks each holds
};
ArenaAssignment assign_arenas(const std::vector<Action>& actions, int microbatches);

// Where the rows lie that another stage sends forward: a slot each, from the time when the message before is taken, as
// the receive is posted then, up to the last action of its microbatch. By message in the order of their coming.
struct SlotAssignment {
  std::vector<int> slot_of;
  int slots = 0;
};
SlotAssignment assign_slots(const std::vector<Action>& actions, int sender);

// Gradients that another stage sends back, of a channel: one in use, and the one before it, which may still be read.
inline constexpr int kGradientsInUse = 2;

// What a stage needs in a training step.
struct StageMemory {
  std::vector<std::vector<int>> arenas;  // chunks that each holds
  std::vector<int> first_arena;          // [chunks]: of its first microbatch; no two share it
  std::map<int, int> slots;              // by stage that sends forward
};
// Of arenas there are, where there are enough microbatches, with p stages, s the stage: 1f1b p − s; gpipe all;
// interleaved 2(p − s − 1) + p(chunks − 1) + 1 of parts of a stage; zb-h1 p; zb-v 2p of halves of a stage; what
// `behind` says more.
StageMemory stage_memory(const Schedule& schedule, int stages, int stage, int microbatches);
// In forward alone: an arena for each chunk.
StageMemory forward_stage_memory(const Schedule& schedule, int stages, int stage);

}  // namespace shiftron
