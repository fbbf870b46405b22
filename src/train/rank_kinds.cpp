// Stages differ by their number of layers, by what they make again, by embedding and head with their shares of the
// vocabulary, and by how many microbatches are in flight; data-parallel ranks do not differ.
#include "train/rank_kinds.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/pipeline.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

// Layers, what they make again, first stage, last stage, share of the vocabulary.
using StageWork = std::tuple<int64_t, RecomputeKind, bool, bool, int64_t>;

struct Plan {
  int number = 0;
  int in_flight = 0;
  int64_t of_microbatch = 0;  // bytes that every microbatch in flight takes
  Ledger ledger;
};

}  // namespace

std::vector<RankKind> plan_kinds(const RunConfig& config, const ParallelLayout& layout, int threads) {
  const std::vector<Range> stages = stage_layers(config.model.layers, layout.pp, config.parallel.stage_layers,
                                                 head_in_layers(config.model, config.train.sequence_length));
  const int microbatches = microbatches_of_step(config, layout);
  std::map<StageWork, Plan> plans;
  std::map<std::pair<StageWork, int>, RankKind> kinds;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const bool first = stage == 0, last = stage == layout.pp - 1;
    const int in_flight = most_in_flight(schedule_of(config), layout.pp, stage, microbatches, 0);
    for (int tp = 0; tp < layout.tp; ++tp) {
      const int64_t share = first || last ? split_range(config.model.vocab, layout.tp, tp).size() : 0;
      const StageWork work{stages[static_cast<size_t>(stage)].size(), config.parallel.recompute.of_stage(stage), first,
                           last, share};
      const int rank = layout.rank({.tp = tp, .pp = stage});
      const auto [planned, is_new] = plans.try_emplace(work);
      Plan& plan = planned->second;
      if (is_new) {
        plan.number = static_cast<int>(plans.size());
        plan.in_flight = in_flight;
        const MemoryPlan bytes = plan_memory(config, layout, rank, threads, plan.ledger);
        plan.of_microbatch = bytes.at("activations") + bytes.at("operands") + bytes.at("received forward");
      }
      const auto [found, is_first] =
          kinds.try_emplace({work, in_flight}, RankKind{.rank = rank, .work = plan.number, .planned = plan.ledger});
      RankKind& kind = found->second;
      if (is_first) kind.planned.add_memory("activations", (in_flight - plan.in_flight) * plan.of_microbatch);
      kind.ranks += int64_t{layout.cp} * layout.dp;
    }
  }
  std::vector<RankKind> by_rank;
  for (auto& [key, kind] : kinds) by_rank.push_back(std::move(kind));
  std::ranges::sort(by_rank, {}, &RankKind::rank);
  return by_rank;
}

}  // namespace shiftron
