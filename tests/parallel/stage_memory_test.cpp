// Arenas and slots: one holder at a time, and not more of them than the published schedules need.
#include "parallel/stage_memory.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <utility>

#include "parallel/schedule_cases.h"
#include "parallel/schedule_times.h"
#include "time_scale.h"

namespace shiftron::testing {
namespace {

using enum ActionKind;

TEST(StageMemory, AnArenaHasOneMicrobatchAtATime) {
  for_each_stage([](const ScheduleCase& c, int, const std::vector<Action>& actions) {
    const ArenaAssignment assignment = assign_arenas(actions, c.microbatches);
    ASSERT_EQ(assignment.arena_of.size(), static_cast<size_t>(c.chunks()));
    using Unit = std::pair<int, int>;  // chunk, microbatch
    std::map<Unit, int> left;
    for (const Action& action : actions) ++left[{action.chunk, action.microbatch}];
    std::map<int, Unit> holder;
    size_t most = 0;
    for (const Action& action : actions) {
      const Unit unit{action.chunk, action.microbatch};
      const int arena = assignment.arena_of[unit.first].at(unit.second);
      ASSERT_EQ(holder.try_emplace(arena, unit).first->second, unit) << "arena " << arena;
      ASSERT_TRUE(std::ranges::count(assignment.chunks.at(arena), unit.first) == 1);
      most = std::max(most, holder.size());
      if (--left[unit] == 0) holder.erase(arena);
    }
    ASSERT_EQ(assignment.chunks.size(), most);  // none that is never needed
  });
}

// Also where something else happens between a microbatch's actions.
TEST(StageMemory, AnArenaIsHeldUpToTheLastActionOfItsMicrobatch) {
  const ArenaAssignment assignment = assign_arenas({{backward, 0}, {forward, 1}, {send_backward, 0}, {forward, 2}}, 3);
  EXPECT_EQ(assignment.arena_of.at(0), (std::vector{0, 1, 1}));
  EXPECT_EQ(assignment.chunks.size(), 2u);
}

// So that each is not larger than it must be.
TEST(StageMemory, AChunkTakesAnArenaThatItHadBefore) {
  const ArenaAssignment assignment = assign_arenas(
      {{forward, 0, 0}, {forward, 0, 1}, {backward, 0, 1}, {backward, 0, 0}, {forward, 1, 0}, {forward, 1, 1}}, 2);
  EXPECT_EQ(assignment.arena_of, (std::vector<std::vector<int>>{{0, 0}, {1, 1}}));
  EXPECT_EQ(assignment.chunks, (std::vector<std::vector<int>>{{0}, {1}}));
}

// The bounds of the papers; reached where there are enough microbatches.
TEST(StageMemory, HasAsManyArenasAsPublished) {
  for_each_stage([](const ScheduleCase& c, int stage, const std::vector<Action>&) {
    if (!c.training) return;
    const int below = c.stages - 1 - stage, all = c.microbatches * c.chunks();
    const std::map<PipelineKind, int> promised = {
        {PipelineKind::one_forward_one_backward, below + 1},
        {PipelineKind::gpipe, all},
        {PipelineKind::interleaved, 2 * below + (c.chunks() - 1) * c.stages + 1},
        {PipelineKind::zb_h1, c.stages},
        {PipelineKind::zb_v, 2 * c.stages}};
    const int bound = std::min(all, promised.at(c.schedule.kind) + c.schedule.delay);
    const int arenas = static_cast<int>(stage_memory(c.schedule, c.stages, stage, c.microbatches).arenas.size());
    ASSERT_LE(arenas, bound);
    const bool reached = c.chunks() == 1 || c.microbatches >= 2 * c.stages + c.schedule.delay;
    ASSERT_TRUE(!reached || arenas == bound) << arenas << " of " << bound;
  });
}

TEST(StageMemory, FirstMicrobatchesOfChunksLieApart) {
  for_each_stage([](const ScheduleCase& c, int stage, const std::vector<Action>&) {
    std::vector<int> first = (c.training ? stage_memory(c.schedule, c.stages, stage, c.microbatches)
                                         : forward_stage_memory(c.schedule, c.stages, stage))
                                 .first_arena;
    ASSERT_EQ(first.size(), static_cast<size_t>(c.chunks()));
    std::ranges::sort(first);
    ASSERT_TRUE(std::ranges::adjacent_find(first) == first.end());
  });
}

// A plan asks for every one of them, so that each may cost no more where there are many.
TEST(StageMemory, ThousandsOfStagesArePlannedInSeconds) {
  constexpr int kStages = 4096;
  const std::clock_t begin = std::clock();
  for (int stage = 0; stage < kStages; ++stage) {
    for (const StageMemory& memory : {stage_memory({}, kStages, stage, 2), forward_stage_memory({}, kStages, stage)}) {
      ASSERT_EQ(memory.slots, stage == 0 ? (std::map<int, int>{}) : (std::map<int, int>{{stage - 1, 2}}));
    }
    ASSERT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, scaled(2)) << "at stage " << stage;
  }
}

TEST(StageMemory, ASlotHasOneMessageAtATimeFromThePostingOfItsReceive) {
  for_each_stage([](const ScheduleCase& c, int stage, const std::vector<Action>& actions) {
    const StageMemory memory = c.training ? stage_memory(c.schedule, c.stages, stage, c.microbatches)
                                          : forward_stage_memory(c.schedule, c.stages, stage);
    std::map<std::pair<int, int>, int> left;
    for (const Action& action : actions) ++left[{action.chunk, action.microbatch}];
    std::map<int, std::vector<Action>> messages;
    for (const Action& action : actions) {
      if (action.kind == recv_forward) messages[action.peer].push_back(action);
    }
    for (const auto& [sender, list] : messages) {
      const SlotAssignment assignment = assign_slots(actions, sender);
      ASSERT_EQ(assignment.slot_of.size(), list.size());
      ASSERT_LE(assignment.slots, memory.slots.at(sender));
      std::map<int, std::pair<int, int>> holder;  // chunk and microbatch, by slot
      size_t posted = 0;
      const auto post = [&] {
        if (posted == list.size()) return;
        const int slot = assignment.slot_of[posted];
        ASSERT_TRUE(holder.try_emplace(slot, list[posted].chunk, list[posted].microbatch).second) << "slot " << slot;
        ++posted;
      };
      post();
      auto uses = left;
      for (const Action& action : actions) {
        if (action.kind == recv_forward && action.peer == sender) post();
        if (--uses[{action.chunk, action.microbatch}] > 0) continue;
        std::erase_if(holder, [&](const auto& held) { return held.second == std::pair{action.chunk, action.microbatch}; });
      }
    }
    ASSERT_EQ(messages.size(), memory.slots.size());
  });
}

}  // namespace
}  // namespace shiftron::testing
