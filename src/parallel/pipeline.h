// Pipeline schedules as action lists: a pure function of (stages, microbatches), executed by the trainer.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline_kind.h"

namespace shiftron {

enum class ActionKind { recv_forward, forward, send_forward, recv_backward, backward, send_backward };

struct Action {
  ActionKind kind;
  int microbatch;
  bool operator==(const Action&) const = default;
};

// What one stage does in a step, in order. Sends never block; a recv waits for its peer.
// 1f1b: at most (stages − stage) microbatches in flight; gpipe: all forwards, then all backwards in the same order.
std::vector<Action> make_schedule(PipelineKind kind, int stages, int stage, int microbatches);
// Forward alone, for evaluation.
std::vector<Action> make_forward_schedule(int stages, int stage, int microbatches);

// Microbatches between their forward and the end of their backward, at most: the arenas that make_schedule() needs.
int most_in_flight(PipelineKind kind, int stages, int stage, int microbatches);

// Which activation arena each microbatch uses, and how many there are: reused as soon as a microbatch is finished.
struct ArenaAssignment {
  std::vector<int> arena_of;  // [microbatches]
  int arenas = 0;
};
ArenaAssignment assign_arenas(const std::vector<Action>& actions, int microbatches);

}  // namespace shiftron
