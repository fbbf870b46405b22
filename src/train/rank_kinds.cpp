// Stages differ in their numbers of layers, in what they recompute, in embedding and head with their shares of the
// vocabulary, and in how many microbatches are in flight; data-parallel ranks do not differ.
#include "train/rank_kinds.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/stage_memory.h"
#include "plan/virtual_stages.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

// Layers, what they recompute, embedding, head, share of the vocabulary, whether rows come from and go to other stages.
using ChunkWork = std::tuple<int64_t, RecomputeKind, bool, bool, int64_t, bool, bool>;
using StageWork = std::vector<ChunkWork>;

struct Plan {
  int number = 0;
  StageMemory memory;
  MemoryPlan bytes;
  Ledger ledger;
};

// The work of each chunk of a stage.
StageWork work_of(const RunConfig& config, const ParallelLayout& layout, const Schedule& schedule,
                  const std::vector<Range>& layers, int stage, int tp) {
  StageWork work;
  for (int chunk = 0; chunk < chunks_of(schedule); ++chunk) {
    const int piece = virtual_stage(schedule, layout.pp, stage, chunk);
    const auto before = neighbour(schedule, layout.pp, {stage, chunk}, -1);
    const auto after = neighbour(schedule, layout.pp, {stage, chunk}, 1);
    const int64_t share = before && after ? 0 : split_range(config.model.vocab, layout.tp, tp).size();
    work.emplace_back(layers[static_cast<size_t>(piece)].size(), config.parallel.recompute.of_stage(stage), !before,
                      !after, share, before && before->stage != stage, after && after->stage != stage);
  }
  return work;
}

// Bytes of microbatches and of the rows received for them.
int64_t bytes_in_flight(const StageMemory& memory, const MemoryPlan& bytes) {
  int64_t all = arena_bytes(memory, bytes);
  for (const auto& [sender, slots] : memory.slots) all += slots * bytes.at("received forward");
  return all;
}

}  // namespace

std::vector<RankKind> plan_kinds(const RunConfig& config, const ParallelLayout& layout, int threads) {
  const Schedule schedule = schedule_of(config);
  const std::vector<Range> layers = virtual_stage_layers(config);
  const int microbatches = microbatches_of_step(config, layout);
  std::map<StageWork, Plan> plans;
  std::map<std::tuple<StageWork, std::vector<std::vector<int>>, std::vector<int>>, RankKind> kinds;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const StageMemory memory = stage_memory(schedule, layout.pp, stage, microbatches);
    std::vector<int> slots;
    for (const auto& [sender, count] : memory.slots) slots.push_back(count);
    for (int tp = 0; tp < layout.tp; ++tp) {
      const StageWork work = work_of(config, layout, schedule, layers, stage, tp);
      const int rank = layout.rank({.tp = tp, .pp = stage});
      const auto [planned, is_new] = plans.try_emplace(work);
      Plan& plan = planned->second;
      if (is_new) {
        plan.number = static_cast<int>(plans.size());
        plan.memory = memory;
        plan.bytes = plan_memory(config, layout, rank, threads, plan.ledger);
      }
      const auto [found, is_first] = kinds.try_emplace(
          {work, memory.arenas, slots}, RankKind{.rank = rank, .work = plan.number, .planned = plan.ledger});
      RankKind& kind = found->second;
      if (is_first) {
        const int64_t more = bytes_in_flight(memory, plan.bytes) - bytes_in_flight(plan.memory, plan.bytes);
        kind.planned.add_memory("activations", more);
      }
      kind.ranks += int64_t{layout.cp} * layout.dp;
    }
  }
  std::vector<RankKind> by_rank;
  for (auto& [key, kind] : kinds) by_rank.push_back(std::move(kind));
  std::ranges::sort(by_rank, {}, &RankKind::rank);
  return by_rank;
}

}  // namespace shiftron
