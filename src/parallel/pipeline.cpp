// 1F1B (Narayanan et al., "PipeDream-Flush") and GPipe (Huang et al. 2019) as lists of actions.
#include "parallel/pipeline.h"

#include <algorithm>

#include "core/check.h"

namespace shiftron {
namespace {

struct Builder {
  int stages, stage, microbatches;
  Schedule schedule{};
  std::vector<Action> actions{};

  void forward(int microbatch) {
    if (stage > 0) actions.push_back({ActionKind::recv_forward, microbatch});
    actions.push_back({ActionKind::forward, microbatch});
    if (stage < stages - 1) actions.push_back({ActionKind::send_forward, microbatch});
  }
  void backward(int microbatch) {
    if (stage < stages - 1) actions.push_back({ActionKind::recv_backward, microbatch});
    actions.push_back({ActionKind::backward, microbatch});
    if (stage > 0) actions.push_back({ActionKind::send_backward, microbatch});
    if (!schedule.deferred) return;
    const int last = microbatches - 1;
    for (int due = microbatch - schedule.behind; due <= (microbatch == last ? last : microbatch - schedule.behind); ++due) {
      if (due >= 0) actions.push_back({ActionKind::weight_gradients, due});
    }
  }
};

// Forwards before the first backward, but for the one that directly precedes it.
int forwards_ahead(PipelineKind kind, int stages, int stage, int microbatches) {
  return kind == PipelineKind::gpipe ? microbatches : std::min(microbatches, stages - 1 - stage);
}

}  // namespace

std::vector<Action> make_schedule(const Schedule& schedule, int stages, int stage, int microbatches) {
  CHECK(stage >= 0 && stage < stages && microbatches > 0, "stage ", stage, " of ", stages, ", ", microbatches,
        " microbatches");
  const PipelineKind kind = schedule.kind;
  CHECK(kind == PipelineKind::one_forward_one_backward || kind == PipelineKind::gpipe, "schedule not in this version");
  Builder builder{stages, stage, microbatches, schedule};
  const int ahead = forwards_ahead(kind, stages, stage, microbatches);
  for (int i = 0; i < ahead; ++i) builder.forward(i);
  for (int i = ahead; i < microbatches; ++i) {
    builder.forward(i);
    builder.backward(i - ahead);
  }
  for (int i = microbatches - ahead; i < microbatches; ++i) builder.backward(i);
  return builder.actions;
}

int most_in_flight(const Schedule& schedule, int stages, int stage, int microbatches) {
  const int ahead = forwards_ahead(schedule.kind, stages, stage, microbatches);
  return std::min(microbatches, ahead + 1 + (schedule.deferred ? schedule.behind : 0));
}

std::vector<Action> make_forward_schedule(int stages, int stage, int microbatches) {
  Builder builder{stages, stage, microbatches};
  for (int i = 0; i < microbatches; ++i) builder.forward(i);
  return builder.actions;
}

ArenaAssignment assign_arenas(const std::vector<Action>& actions, int microbatches) {
  ArenaAssignment assignment{std::vector<int>(static_cast<size_t>(microbatches), -1), 0};
  std::vector<int> last_use(static_cast<size_t>(microbatches), 0);
  for (size_t i = 0; i < actions.size(); ++i) last_use[actions[i].microbatch] = static_cast<int>(i);
  std::vector<int> free;
  for (size_t i = 0; i < actions.size(); ++i) {
    const int microbatch = actions[i].microbatch;
    if (assignment.arena_of[microbatch] < 0) {
      if (free.empty()) free.push_back(assignment.arenas++);
      assignment.arena_of[microbatch] = free.back();
      free.pop_back();
    }
    if (last_use[microbatch] == static_cast<int>(i)) free.push_back(assignment.arena_of[microbatch]);
  }
  return assignment;
}

}  // namespace shiftron
