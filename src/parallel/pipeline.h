// Pipeline schedules as action lists: a pure function of (stages, microbatches), executed by the trainer.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline_kind.h"

namespace shiftron {

enum class ActionKind { recv_forward, forward, send_forward, recv_backward, backward, send_backward, weight_gradients };

struct Action {
  ActionKind kind;
  int microbatch;
  bool operator==(const Action&) const = default;
};

// How a step's work is ordered. Without deferral a backward makes its weight gradients itself; with it they are an action of
// their own, `behind` backwards later.
struct Schedule {
  PipelineKind kind = PipelineKind::one_forward_one_backward;
  bool deferred = false;
  int behind = 0;
};

// What one stage does in a step, in order. Sends never block; a recv waits for its peer.
// 1f1b: at most (stages − stage) microbatches in flight; gpipe: all forwards, then all backwards in the same order.
std::vector<Action> make_schedule(const Schedule& schedule, int stages, int stage, int microbatches);
// Forward alone, for evaluation.
std::vector<Action> make_forward_schedule(int stages, int stage, int microbatches);

// Microbatches between their forward and their last action, at most: the arenas that make_schedule() needs.
int most_in_flight(const Schedule& schedule, int stages, int stage, int microbatches);

// Which activation arena each microbatch uses, and how many there are: reused as soon as a microbatch is finished.
struct ArenaAssignment {
  std::vector<int> arena_of;  // [microbatches]
  int arenas = 0;
};
ArenaAssignment assign_arenas(const std::vector<Action>& actions, int microbatches);

}  // namespace shiftron
