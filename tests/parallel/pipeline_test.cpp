// Schedules: complete, in order, and within their arenas.
#include "parallel/pipeline.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "parallel/schedule_cases.h"
#include "parallel/schedule_times.h"

namespace shiftron::testing {
namespace {

using enum ActionKind;

TEST(Pipeline, VirtualStagesAndPlacesAreInverse) {
  for (const Schedule& schedule : all_schedules()) {
    for (int stages = 1; stages <= kMostStages; ++stages) {
      for (int virtual_one = 0; virtual_one < stages * chunks_of(schedule); ++virtual_one) {
        const ChunkPlace place = chunk_place(schedule, stages, virtual_one);
        EXPECT_TRUE(place.stage >= 0 && place.stage < stages && place.chunk >= 0 && place.chunk < chunks_of(schedule));
        EXPECT_EQ(virtual_stage(schedule, stages, place.stage, place.chunk), virtual_one);
      }
    }
  }
  EXPECT_EQ(virtual_stage({PipelineKind::interleaved, 3}, 4, 1, 2), 9);
  EXPECT_EQ(virtual_stage({PipelineKind::zb_v}, 4, 1, 1), 6);
}

TEST(Pipeline, EveryMicrobatchOfAChunkHasItsActionsOnceAndInOrder) {
  for_each_stage([](const ScheduleCase& c, int stage, const std::vector<Action>& actions) {
    std::vector<std::vector<Action>> expected;
    for (int chunk = 0; chunk < c.chunks(); ++chunk) {
      const int before = c.neighbour(stage, chunk, -1), behind = c.neighbour(stage, chunk, 1);
      const bool from = before >= 0 && before != stage, to = behind >= 0 && behind != stage;
      std::vector<Action>& own = expected.emplace_back();
      if (from) own.push_back({recv_forward, 0, chunk, before});
      own.push_back({forward, 0, chunk});
      if (to) own.push_back({send_forward, 0, chunk, behind});
      if (c.training && to) own.push_back({recv_backward, 0, chunk, behind});
      if (c.training) own.push_back({backward, 0, chunk});
      if (c.training && from) own.push_back({send_backward, 0, chunk, before});
      if (c.deferred()) own.push_back({weight_gradients, 0, chunk});
    }
    std::vector<std::vector<size_t>> found(expected.size(), std::vector<size_t>(static_cast<size_t>(c.microbatches)));
    for (const Action& action : actions) {
      size_t& next = found.at(action.chunk).at(action.microbatch);
      ASSERT_LT(next, expected[action.chunk].size()) << text_of(action);
      Action wanted = expected[action.chunk][next++];
      wanted.microbatch = action.microbatch;
      ASSERT_TRUE(action == wanted) << text_of(action) << ", expected " << text_of(wanted);
    }
    for (size_t chunk = 0; chunk < found.size(); ++chunk) {
      for (const size_t count : found[chunk]) ASSERT_EQ(count, expected[chunk].size());
    }
  });
}

TEST(Pipeline, EveryKindOfActionGoesThroughTheMicrobatchesOfAChunkInOrder) {
  for_each_stage([](const ScheduleCase& c, int, const std::vector<Action>& actions) {
    std::vector<std::array<int, 7>> next(static_cast<size_t>(c.chunks()));
    for (const Action& action : actions) {
      ASSERT_EQ(action.microbatch, next[action.chunk][static_cast<size_t>(action.kind)]++) << text_of(action);
    }
  });
}

TEST(Pipeline, MessagesStandBesideTheirComputation) {
  for_each_stage([](const ScheduleCase&, int, const std::vector<Action>& actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      const ActionKind kind = actions[i].kind;
      const bool receives = kind == recv_forward || kind == recv_backward;
      if (!receives && kind != send_forward && kind != send_backward) continue;
      const size_t at = receives ? i + 1 : i - 1;
      ASSERT_LT(at, actions.size());
      const ActionKind computes = kind == recv_forward || kind == send_forward ? forward : backward;
      ASSERT_TRUE((actions[at] == Action{computes, actions[i].microbatch, actions[i].chunk})) << text_of(actions[i]);
    }
  });
}

// So that messages need no label.
TEST(Pipeline, WhatIsSentFirstIsReceivedFirst) {
  for_each_case([](const ScheduleCase& c) {
    using Messages = std::vector<std::pair<int, int>>;  // virtual stage that receives it, microbatch
    std::map<std::tuple<int, int, bool>, std::pair<Messages, Messages>> channels;
    for (int stage = 0; stage < c.stages; ++stage) {
      for (const Action& action : c.actions(stage)) {
        const bool receives = action.kind == recv_forward || action.kind == recv_backward;
        const bool goes_forward = action.kind == send_forward || action.kind == recv_forward;
        if (!receives && action.kind != send_forward && action.kind != send_backward) continue;
        const int own = virtual_stage(c.schedule, c.stages, stage, action.chunk);
        if (receives) {
          channels[{action.peer, stage, goes_forward}].second.emplace_back(own, action.microbatch);
        } else {
          channels[{stage, action.peer, goes_forward}].first.emplace_back(own + (goes_forward ? 1 : -1),
                                                                          action.microbatch);
        }
      }
    }
    for (const auto& [channel, messages] : channels) ASSERT_EQ(messages.first, messages.second);
  });
}

// The published bounds; reached where there are enough microbatches.
TEST(Pipeline, NoMoreMicrobatchesAreInFlightThanPromised) {
  for_each_stage([](const ScheduleCase& c, int stage, const std::vector<Action>& actions) {
    if (!c.training) return;
    int in_flight = 0, most = 0;
    for (const Action& action : actions) {
      if (action.kind == forward) most = std::max(most, ++in_flight);
      if (action.kind == (c.deferred() ? weight_gradients : backward)) --in_flight;
    }
    ASSERT_EQ(in_flight, 0);
    const int below = c.stages - 1 - stage, all = c.microbatches * c.chunks();
    const std::map<PipelineKind, int> promised = {
        {PipelineKind::one_forward_one_backward, below + 1},
        {PipelineKind::gpipe, all},
        {PipelineKind::interleaved, 2 * below + (c.chunks() - 1) * c.stages + 1},
        {PipelineKind::zb_h1, c.stages},
        {PipelineKind::zb_v, 2 * c.stages}};
    const int bound = std::min(all, promised.at(c.schedule.kind) + c.schedule.delay);
    ASSERT_LE(most, bound);
    const bool reached = c.chunks() == 1 || c.microbatches >= 2 * c.stages + c.schedule.delay;
    ASSERT_TRUE(!reached || most == bound) << most << " of " << bound;
  });
}

// Computation alone: F1.0 is the forward of microbatch 1 in chunk 0.
std::string order_of(const Schedule& schedule, int stages, int stage, int microbatches) {
  std::string text;
  for (const auto& [kind, microbatch, chunk, peer] : make_schedule(schedule, stages, stage, microbatches)) {
    if (kind != forward && kind != backward && kind != weight_gradients) continue;
    text += (kind == forward    ? "F"
             : kind == backward ? "B"
                                : "W") +
            std::to_string(microbatch) + "." + std::to_string(chunk) + " ";
  }
  return text;
}

TEST(Pipeline, SmallSchedulesAreAsDrawn) {
  using enum PipelineKind;
  EXPECT_EQ(order_of({one_forward_one_backward}, 3, 1, 4), "F0.0 F1.0 B0.0 F2.0 B1.0 F3.0 B2.0 B3.0 ");
  EXPECT_EQ(order_of({gpipe}, 3, 1, 2), "F0.0 F1.0 B0.0 B1.0 ");
  EXPECT_EQ(order_of({zb_h1}, 3, 1, 4), "F0.0 F1.0 B0.0 F2.0 B1.0 W0.0 F3.0 B2.0 W1.0 B3.0 W2.0 W3.0 ");
  EXPECT_EQ(order_of({interleaved, 2}, 2, 1, 3), "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 B1.0 F2.1 B2.1 B2.0 ");
  EXPECT_EQ(order_of({zb_v}, 2, 0, 3),
            "F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 B0.0 W0.0 F2.1 B2.1 W2.1 B1.0 W1.0 B2.0 W2.0 ");
  EXPECT_EQ(order_of({zb_v}, 2, 1, 3),
            "F0.0 F0.1 F1.0 F1.1 B0.1 W0.1 F2.0 B0.0 W0.0 F2.1 B1.1 W1.1 B1.0 B2.1 B2.0 W1.0 W2.1 W2.0 ");
}

}  // namespace
}  // namespace shiftron::testing
