// Stages differ by their numbers of layers, by what they make again, by embedding and head with their shares of the
// vocabulary, and by how many microbatches are in flight; data-parallel ranks do not differ.
#include "train/rank_kinds.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/pipeline.h"
#include "train/trainer.h"
#include "train/virtual_stages.h"

namespace shiftron {
namespace {

// Layers, what they make again, embedding, head, share of the vocabulary.
using ChunkWork = std::tuple<int64_t, RecomputeKind, bool, bool, int64_t>;
using StageWork = std::vector<ChunkWork>;

struct Plan {
  int number = 0;
  std::vector<int> in_flight;           // of each chunk
  std::vector<int64_t> of_microbatch;   // bytes that each one in flight takes
  Ledger ledger;
};

// Of the chunks of a stage.
StageWork work_of(const RunConfig& config, const ParallelLayout& layout, const Schedule& schedule,
                  const std::vector<Range>& layers, int stage, int tp) {
  StageWork work;
  const int pieces = static_cast<int>(layers.size());
  for (int chunk = 0; chunk < chunks_of(schedule); ++chunk) {
    const int piece = virtual_stage(schedule, layout.pp, stage, chunk);
    const bool first = piece == 0, last = piece == pieces - 1;
    const int64_t share = first || last ? split_range(config.model.vocab, layout.tp, tp).size() : 0;
    work.emplace_back(layers[static_cast<size_t>(piece)].size(), config.parallel.recompute.of_stage(stage), first, last,
                      share);
  }
  return work;
}

// Whether its rows come from another stage.
bool receives(const Schedule& schedule, int stages, int stage, int chunk) {
  const int piece = virtual_stage(schedule, stages, stage, chunk);
  return piece > 0 && chunk_place(schedule, stages, piece - 1).stage != stage;
}

}  // namespace

std::vector<RankKind> plan_kinds(const RunConfig& config, const ParallelLayout& layout, int threads) {
  const Schedule schedule = schedule_of(config);
  const std::vector<Range> layers = virtual_stage_layers(config);
  const int microbatches = microbatches_of_step(config, layout);
  std::map<StageWork, Plan> plans;
  std::map<std::pair<StageWork, std::vector<int>>, RankKind> kinds;
  for (int stage = 0; stage < layout.pp; ++stage) {
    std::vector<int> in_flight;
    for (int chunk = 0; chunk < chunks_of(schedule); ++chunk) {
      in_flight.push_back(most_in_flight(schedule, layout.pp, stage, microbatches, chunk));
    }
    for (int tp = 0; tp < layout.tp; ++tp) {
      const StageWork work = work_of(config, layout, schedule, layers, stage, tp);
      const int rank = layout.rank({.tp = tp, .pp = stage});
      const auto [planned, is_new] = plans.try_emplace(work);
      Plan& plan = planned->second;
      if (is_new) {
        plan.number = static_cast<int>(plans.size());
        plan.in_flight = in_flight;
        const MemoryPlan bytes = plan_memory(config, layout, rank, threads, plan.ledger);
        for (int chunk = 0; chunk < chunks_of(schedule); ++chunk) {
          int64_t& each = plan.of_microbatch.emplace_back(0);
          for (const char* kind : {"activations", "operands"}) each += bytes.at(arena_name(kind, chunk));
          if (receives(schedule, layout.pp, stage, chunk)) each += bytes.at("received forward");
        }
      }
      const auto [found, is_first] =
          kinds.try_emplace({work, in_flight}, RankKind{.rank = rank, .work = plan.number, .planned = plan.ledger});
      RankKind& kind = found->second;
      for (size_t chunk = 0; is_first && chunk < in_flight.size(); ++chunk) {
        kind.planned.add_memory("activations", (in_flight[chunk] - plan.in_flight[chunk]) * plan.of_microbatch[chunk]);
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
