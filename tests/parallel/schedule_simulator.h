// Runs the schedules of all stages against each other, each exchange in a queue as on a device: do they hang?
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <vector>

#include "core/check.h"
#include "parallel/pipeline.h"

namespace shiftron::testing {

// What of a stage is done in one order; computation always has a queue of its own.
enum class Queues {
  per_edge_and_direction,  // four in a middle stage: forward and backward, what is received and what is sent
  per_direction            // two: all that goes forward, received and sent; all that goes backward
};

struct StagePlan {
  std::vector<Action> actions;  // as they are handed over, each to its queue
  std::vector<int> arena_of;    // [microbatches]
};

inline bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
inline bool is_receive(ActionKind kind) {
  return kind == ActionKind::recv_forward || kind == ActionKind::recv_backward;
}
inline std::string text_of(const Action& action) {
  constexpr std::array kNames = {"recv_forward", "forward",       "send_forward",    "recv_backward",
                                 "backward",     "send_backward", "weight_gradients"};
  return kNames.at(static_cast<size_t>(action.kind)) + (" " + std::to_string(action.microbatch));
}

// An action runs at the head of its queue, alone: computation behind what it receives, a send behind its computation
// and together with its receive, at the head of the peer's queue. A microbatch waits for all of the one that had its
// arena before. What can run can still run after anything else has: one order of running shows what every order does.
class Simulation {
 public:
  Simulation(const std::vector<StagePlan>& plans, Queues queues) {
    for (const StagePlan& plan : plans) stages_.emplace_back(plan, queues);
  }

  // What stands at the heads of the queues when nothing can run any more; "" when everything has run.
  std::string hang() {
    while (pass()) {
    }
    std::string text;
    for (size_t i = 0; i < stages_.size(); ++i) {
      for (const auto& queue : stages_[i].queues) {
        if (!queue.empty()) text += "stage " + std::to_string(i) + ": " + text_of(queue.front()) + "; ";
      }
    }
    return text;
  }

 private:
  struct Stage {
    Stage(const StagePlan& plan, Queues kind)
        : done(plan.arena_of.size()), left(plan.arena_of.size()), before(plan.arena_of.size(), -1), shared(kind) {
      std::vector<int> last_of(plan.arena_of.size(), -1);  // of each arena
      for (const Action& action : plan.actions) {
        queue_of(action.kind).push_back(action);
        if (left.at(action.microbatch)++ > 0) continue;
        int& last = last_of.at(plan.arena_of.at(action.microbatch));
        before[action.microbatch] = last;
        last = action.microbatch;
      }
    }
    std::deque<Action>& queue_of(ActionKind kind) {
      if (!is_send(kind) && !is_receive(kind)) return queues[0];
      const bool backward = kind == ActionKind::recv_backward || kind == ActionKind::send_backward;
      if (shared == Queues::per_direction) return queues[backward ? 2 : 1];
      return queues[(backward ? 3 : 1) + (is_send(kind) ? 1 : 0)];
    }
    bool is_done(ActionKind kind, int microbatch) const { return done[microbatch][static_cast<size_t>(kind)]; }
    bool may_touch(int microbatch) const { return before[microbatch] < 0 || left[before[microbatch]] == 0; }
    void finish(std::deque<Action>& queue) {
      const Action action = queue.front();
      queue.pop_front();
      done[action.microbatch][static_cast<size_t>(action.kind)] = true;
      --left[action.microbatch];
    }

    std::array<std::deque<Action>, 5> queues;
    std::vector<std::array<bool, 7>> done;  // [microbatches][kinds]
    std::vector<int> left;                  // actions of each microbatch that have not run
    std::vector<int> before;                // which microbatch had its arena; −1: none
    Queues shared;
  };

  // Whether an action other than a receive can run at the head of its queue.
  bool can_run(size_t stage, const Action& action) const {
    const Stage& own = stages_[stage];
    const auto is_done = [&](ActionKind kind) { return own.is_done(kind, action.microbatch); };
    switch (action.kind) {
      case ActionKind::forward:
        return own.may_touch(action.microbatch) && (stage == 0 || is_done(ActionKind::recv_forward));
      case ActionKind::backward:
        return is_done(ActionKind::forward) && (stage + 1 == stages_.size() || is_done(ActionKind::recv_backward));
      case ActionKind::weight_gradients:
        return is_done(ActionKind::backward);
      case ActionKind::send_forward:
        return is_done(ActionKind::forward);
      case ActionKind::send_backward:
        return is_done(ActionKind::backward);
      default:
        return false;
    }
  }

  // A send and its receive together.
  bool exchange(size_t stage, std::deque<Action>& queue) {
    const Action& sent = queue.front();
    const bool forward = sent.kind == ActionKind::send_forward;
    CHECK(forward ? stage + 1 < stages_.size() : stage > 0, "stage ", stage, " sends to nobody: ", text_of(sent));
    Stage& peer = stages_[forward ? stage + 1 : stage - 1];
    const Action received{forward ? ActionKind::recv_forward : ActionKind::recv_backward, sent.microbatch};
    std::deque<Action>& other = peer.queue_of(received.kind);
    if (other.empty() || other.front() != received || !peer.may_touch(sent.microbatch)) return false;
    stages_[stage].finish(queue);
    peer.finish(other);
    return true;
  }

  // Runs what can run; false when nothing could.
  bool pass() {
    bool ran = false;
    for (size_t i = 0; i < stages_.size(); ++i) {
      for (auto& queue : stages_[i].queues) {
        if (queue.empty() || !can_run(i, queue.front())) continue;
        if (is_send(queue.front().kind)) {
          ran = exchange(i, queue) || ran;
        } else {
          stages_[i].finish(queue);
          ran = true;
        }
      }
    }
    return ran;
  }

  std::vector<Stage> stages_;
};

// The same actions, but each receive directly behind the one of its kind before it: it is posted one ahead.
inline std::vector<Action> post_one_ahead(const std::vector<Action>& actions) {
  std::vector<Action> moved;
  for (auto action = actions.begin(); action != actions.end(); ++action) {
    if (std::ranges::find(moved, *action) == moved.end()) moved.push_back(*action);
    if (!is_receive(action->kind)) continue;
    const auto next = std::find_if(action + 1, actions.end(), [&](const Action& a) { return a.kind == action->kind; });
    if (next != actions.end()) moved.push_back(*next);
  }
  return moved;
}

}  // namespace shiftron::testing
