// Walks through a stage's list and tracks which memory is free.
#include "parallel/stage_memory.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <set>
#include <utility>

namespace shiftron {
namespace {

// Positions of the last actions: [chunks][microbatches].
std::vector<std::vector<size_t>> last_actions(const std::vector<Action>& actions) {
  std::vector<std::vector<size_t>> last;
  for (size_t i = 0; i < actions.size(); ++i) {
    const auto [kind, microbatch, chunk, peer] = actions[i];
    last.resize(std::max(last.size(), static_cast<size_t>(chunk) + 1));
    last[chunk].resize(std::max(last[chunk].size(), static_cast<size_t>(microbatch) + 1));
    last[chunk][microbatch] = i;
  }
  return last;
}

// The arena that a chunk takes next.
int take(std::deque<int>& free, std::vector<std::vector<int>>& chunks, int chunk) {
  const auto knows = [&](int arena) { return std::ranges::find(chunks[arena], chunk) != chunks[arena].end(); };
  auto found = std::ranges::find_if(free, knows);
  if (found == free.end()) found = free.begin();
  int arena = static_cast<int>(chunks.size());
  if (found == free.end()) {
    chunks.emplace_back();
  } else {
    arena = *found;
    free.erase(found);
  }
  if (!knows(arena)) chunks[arena].insert(std::ranges::lower_bound(chunks[arena], chunk), chunk);
  return arena;
}

// Other stages that send rows forward to this one.
std::set<int> senders_to(const Schedule& schedule, int stages, int stage) {
  std::set<int> senders;
  for (int chunk = 0; chunk < chunks_of(schedule); ++chunk) {
    const auto before = neighbour(schedule, stages, {stage, chunk}, -1);
    if (before && before->stage != stage) senders.insert(before->stage);
  }
  return senders;
}

}  // namespace

ArenaAssignment assign_arenas(const std::vector<Action>& actions, int microbatches) {
  ArenaAssignment assignment;
  const std::vector<std::vector<size_t>> last = last_actions(actions);
  assignment.arena_of.assign(last.size(), std::vector<int>(static_cast<size_t>(microbatches), -1));
  std::deque<int> free;
  for (size_t i = 0; i < actions.size(); ++i) {
    const auto [kind, microbatch, chunk, peer] = actions[i];
    int& arena = assignment.arena_of[chunk][microbatch];
    if (arena < 0) arena = take(free, assignment.chunks, chunk);
    if (last[chunk][microbatch] == i) free.push_back(arena);
  }
  return assignment;
}

SlotAssignment assign_slots(const std::vector<Action>& actions, int sender) {
  const std::vector<std::vector<size_t>> last = last_actions(actions);
  SlotAssignment assignment;
  std::priority_queue<std::pair<size_t, int>, std::vector<std::pair<size_t, int>>, std::greater<>> in_use;  // until, slot
  size_t posted = 0;  // the action after which the receive is posted
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != ActionKind::recv_forward || actions[i].peer != sender) continue;
    int slot = assignment.slots;
    if (!in_use.empty() && in_use.top().first < posted) {
      slot = in_use.top().second;
      in_use.pop();
    } else {
      assignment.slots += 1;
    }
    in_use.emplace(last[actions[i].chunk][actions[i].microbatch], slot);
    assignment.slot_of.push_back(slot);
    posted = i;
  }
  return assignment;
}

StageMemory stage_memory(const Schedule& schedule, int stages, int stage, int microbatches) {
  const auto actions = make_schedule(schedule, stages, stage, microbatches);
  ArenaAssignment assignment = assign_arenas(actions, microbatches);
  StageMemory memory;
  memory.arenas = std::move(assignment.chunks);
  for (const auto& arenas : assignment.arena_of) memory.first_arena.push_back(arenas.front());
  for (const int sender : senders_to(schedule, stages, stage)) {
    memory.slots[sender] = std::max(2, assign_slots(actions, sender).slots);
  }
  return memory;
}

StageMemory forward_stage_memory(const Schedule& schedule, int stages, int stage) {
  StageMemory memory;
  for (int chunk = 0; chunk < chunks_of(schedule); ++chunk) {
    memory.arenas.push_back({chunk});
    memory.first_arena.push_back(chunk);
  }
  for (const int sender : senders_to(schedule, stages, stage)) memory.slots[sender] = 2;
  return memory;
}

}  // namespace shiftron
