// Schedules: complete, in order, within their arenas, and without a hang, however slow the exchange.
#include "parallel/pipeline.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>

#include "core/enum_names.h"
#include "parallel/schedule_simulator.h"

namespace shiftron::testing {
namespace {

constexpr int kMostStages = 8, kMostMicrobatches = 20;

// The kinds of schedule, and the forward one, which has none.
struct Case {
  std::optional<Schedule> schedule;
  int stages, microbatches;
  std::vector<Action> actions(int stage) const {
    return schedule ? make_schedule(*schedule, stages, stage, microbatches)
                : make_forward_schedule(stages, stage, microbatches);
  }
  bool deferred() const { return schedule && schedule->deferred; }
  std::string text() const {
    return std::string(schedule ? to_string(schedule->kind) : "forward") +
           (deferred() ? ", weight gradients " + std::to_string(schedule->behind) + " behind, " : ", ") + std::to_string(stages) + " stages, " +
           std::to_string(microbatches) + " microbatches";
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  constexpr auto kAlternating = PipelineKind::one_forward_one_backward;
  const std::vector<std::optional<Schedule>> schedules = {
      Schedule{kAlternating}, Schedule{PipelineKind::gpipe}, {},
      Schedule{kAlternating, true, 0}, Schedule{kAlternating, true, 2}, Schedule{PipelineKind::gpipe, true, 1}};
  for (const auto& schedule : schedules) {
    for (int stages = 1; stages <= kMostStages; ++stages) {
      for (int microbatches = 1; microbatches <= kMostMicrobatches; ++microbatches) {
        all.push_back({schedule, stages, microbatches});
      }
    }
  }
  return all;
}

// Calls visit for every stage of every case until one fails.
void for_each_stage(const std::function<void(const Case&, int stage)>& visit) {
  for (const Case& c : cases()) {
    for (int stage = 0; stage < c.stages; ++stage) {
      SCOPED_TRACE(c.text() + ", stage " + std::to_string(stage));
      visit(c, stage);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Pipeline, EveryMicrobatchHasItsActionsOnceAndInOrder) {
  for_each_stage([](const Case& c, int stage) {
    std::vector<ActionKind> expected;
    if (stage > 0) expected.push_back(ActionKind::recv_forward);
    expected.push_back(ActionKind::forward);
    if (stage < c.stages - 1) expected.push_back(ActionKind::send_forward);
    if (c.schedule && stage < c.stages - 1) expected.push_back(ActionKind::recv_backward);
    if (c.schedule) expected.push_back(ActionKind::backward);
    if (c.schedule && stage > 0) expected.push_back(ActionKind::send_backward);
    if (c.deferred()) expected.push_back(ActionKind::weight_gradients);
    std::map<int, std::vector<ActionKind>> found;
    for (const Action& action : c.actions(stage)) found[action.microbatch].push_back(action.kind);
    ASSERT_EQ(found.size(), static_cast<size_t>(c.microbatches));
    for (int i = 0; i < c.microbatches; ++i) EXPECT_EQ(found[i], expected) << "microbatch " << i;
  });
}

// What is sent first is received first, so that messages need no label.
TEST(Pipeline, EveryKindOfActionGoesThroughTheMicrobatchesInOrder) {
  for_each_stage([](const Case& c, int stage) {
    std::map<ActionKind, int> next;
    for (const Action& action : c.actions(stage)) EXPECT_EQ(action.microbatch, next[action.kind]++) << text_of(action);
  });
}

TEST(Pipeline, MostInFlightIsReachedAndNotExceeded) {
  for_each_stage([](const Case& c, int stage) {
    if (!c.schedule) return;
    const ActionKind last = c.deferred() ? ActionKind::weight_gradients : ActionKind::backward;
    int in_flight = 0, most = 0;
    for (const Action& action : c.actions(stage)) {
      if (action.kind == ActionKind::forward) most = std::max(most, ++in_flight);
      if (action.kind == last) --in_flight;
    }
    EXPECT_EQ(in_flight, 0);
    EXPECT_EQ(most_in_flight(*c.schedule, c.stages, stage, c.microbatches), most);
    const int behind = c.deferred() ? c.schedule->behind : 0;
    const bool all = c.schedule->kind == PipelineKind::gpipe;
    const int promised = all ? c.microbatches : std::min(c.microbatches, c.stages - stage + behind);
    EXPECT_EQ(most, promised);
  });
}

TEST(Pipeline, AnArenaHasOneMicrobatchAtATimeAndThereAreNoMoreThanInFlight) {
  for_each_stage([](const Case& c, int stage) {
    const std::vector<Action> actions = c.actions(stage);
    const ArenaAssignment assignment = assign_arenas(actions, c.microbatches);
    ASSERT_EQ(assignment.arena_of.size(), static_cast<size_t>(c.microbatches));
    EXPECT_EQ(assignment.arenas, c.schedule ? most_in_flight(*c.schedule, c.stages, stage, c.microbatches) : 1);
    std::map<int, int> left;  // actions of each microbatch
    for (const Action& action : actions) ++left[action.microbatch];
    std::map<int, int> holder;  // of each arena
    for (const Action& action : actions) {
      const int arena = assignment.arena_of[action.microbatch];
      EXPECT_TRUE(arena >= 0 && arena < assignment.arenas) << text_of(action) << " in arena " << arena;
      const int held_by = holder.emplace(arena, action.microbatch).first->second;
      EXPECT_EQ(held_by, action.microbatch) << text_of(action) << " in arena " << arena;
      if (--left[action.microbatch] == 0) holder.erase(arena);
    }
  });
}

// Also where something else happens between a microbatch's actions.
TEST(Pipeline, AnArenaIsHeldUpToTheLastActionOfItsMicrobatch) {
  const ArenaAssignment assignment = assign_arenas(
      {{ActionKind::backward, 0}, {ActionKind::forward, 1}, {ActionKind::send_backward, 0}, {ActionKind::forward, 2}},
      3);
  EXPECT_EQ(assignment.arena_of, (std::vector{0, 1, 0}));
  EXPECT_EQ(assignment.arenas, 2);
}

// ---- hangs ----------------------------------------------------------------------------------------------------------
enum class Posted { in_place, one_ahead, one_ahead_into_one_more_arena };

std::string hang_of(const Case& c, Queues queues, Posted posted) {
  std::vector<StagePlan> plans;
  for (int stage = 0; stage < c.stages; ++stage) {
    const std::vector<Action> actions = c.actions(stage);
    const std::vector<Action> issued = posted == Posted::in_place ? actions : post_one_ahead(actions);
    const bool more = posted == Posted::one_ahead_into_one_more_arena;
    plans.push_back({issued, assign_arenas(more ? issued : actions, c.microbatches).arena_of});
  }
  return Simulation(plans, queues).hang();
}

TEST(Pipeline, NeverHangsWhereEveryEdgeAndDirectionHasAQueue) {
  for (const Case& c : cases()) {
    for (const Posted posted : {Posted::in_place, Posted::one_ahead, Posted::one_ahead_into_one_more_arena}) {
      EXPECT_EQ(hang_of(c, Queues::per_edge_and_direction, posted), "") << c.text();
    }
  }
}

// Why a middle stage has four queues and not one a direction, where the send of microbatch m may stand behind the
// receive of m + 1. Three stages, 1f1b: that receive of the middle one waits for the arena of a microbatch whose
// gradient has not been sent, since that stands behind the receive of the next gradient, which the last stage cannot
// make without m. One more arena puts that off to four stages. Evaluation has one arena, whose own send it is that
// cannot go.
TEST(Pipeline, OneQueuePerDirectionHangsFromThreeStagesOnWhereReceivesArePostedOneAhead) {
  for (const Case& c : cases()) {
    const auto hangs = [&](Posted posted) { return hang_of(c, Queues::per_direction, posted) != ""; };
    const auto least = [&](int stages, int microbatches) {
      return c.stages >= stages && c.microbatches >= microbatches;
    };
    const bool alternates = c.schedule && c.schedule->kind == PipelineKind::one_forward_one_backward;
    if (c.deferred()) continue;
    EXPECT_FALSE(hangs(Posted::in_place)) << c.text();
    EXPECT_EQ(hangs(Posted::one_ahead), c.schedule ? alternates && least(3, 3) : least(3, 2)) << c.text();
    EXPECT_EQ(hangs(Posted::one_ahead_into_one_more_arena), alternates && least(4, 5)) << c.text();
  }
}

TEST(Simulation, ShowsWhatHangs) {
  const std::vector<Action> sends = {{ActionKind::forward, 0}, {ActionKind::send_forward, 0}};
  const std::vector<Action> receives = {{ActionKind::recv_forward, 0}, {ActionKind::forward, 0}};
  const auto hang = [](const std::vector<Action>& first, const std::vector<Action>& second, std::vector<int> arenas) {
    return Simulation({{first, arenas}, {second, arenas}}, Queues::per_edge_and_direction).hang();
  };
  EXPECT_EQ(hang(sends, receives, {0}), "");
  EXPECT_EQ(hang(sends, {{ActionKind::forward, 0}}, {0}), "stage 0: send_forward 0; stage 1: forward 0; ");
  EXPECT_EQ(hang({{ActionKind::forward, 0}}, receives, {0}), "stage 1: forward 0; stage 1: recv_forward 0; ");
  EXPECT_EQ(hang(sends, {{ActionKind::recv_forward, 1}}, {0, 1}), "stage 0: send_forward 0; stage 1: recv_forward 1; ");
  // An arena is given on when its microbatch has been received at the other end.
  const std::vector<Action> two = {{ActionKind::forward, 0}, {ActionKind::forward, 1}, {ActionKind::send_forward, 0}};
  EXPECT_EQ(hang(two, {}, {0, 1}), "stage 0: send_forward 0; ");
  EXPECT_EQ(hang(two, {}, {0, 0}), "stage 0: forward 1; stage 0: send_forward 0; ");
}

}  // namespace
}  // namespace shiftron::testing
