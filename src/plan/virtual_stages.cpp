// Plans, pictures and drawings share one rule: the layers are cut as the engine cuts them.
#include "plan/virtual_stages.h"

#include <fmt/format.h>

#include "core/check.h"
#include "plan/schedule_drawing.h"

namespace shiftron {
namespace {

constexpr int64_t kMostDrawn = 1 << 20;  // microbatches of all virtual stages: some seconds

}  // namespace

std::vector<Range> virtual_stage_layers(const RunConfig& config) {
  return stage_layers(config.model.layers, config.parallel.pp * chunks_of(schedule_of(config)),
                      config.parallel.stage_layers, head_in_layers(config.model, config.train.sequence_length));
}

ScheduleCosts schedule_costs(const RunConfig& config) {
  const Schedule schedule = schedule_of(config);
  ScheduleCosts costs;
  for (const Range& range : virtual_stage_layers(config)) {
    const auto layers = static_cast<double>(range.size());
    const int at = static_cast<int>(costs.virtual_stages.size());
    const int stage = chunk_place(schedule, config.parallel.pp, at).stage;
    const bool again = config.parallel.recompute.of_stage(stage) == RecomputeKind::full;
    costs.virtual_stages.push_back(
        {.forward = layers, .backward_input = again ? 2 * layers : layers, .backward_weight = layers});
  }
  costs.virtual_stages.back().forward += 3 * head_in_layers(config.model, config.train.sequence_length);
  return costs;
}

std::string draw_run(const RunConfig& config, const ParallelLayout& layout) {
  const Schedule schedule = schedule_of(config);
  const int microbatches = microbatches_of_step(config, layout);
  const int64_t parts = int64_t{layout.pp} * chunks_of(schedule) * microbatches;
  if (parts > kMostDrawn) {
    throw_bad_input("a drawing of ", layout.pp, " stages and ", microbatches, " microbatches would have ", parts,
                    " parts; the maximum is ", kMostDrawn, "; draw with a smaller train.global_batch");
  }
  const std::string title = fmt::format("{} ranks: {}; {} layers; time in forward passes of a layer", layout.ranks(),
                                        text_of(layout), config.model.layers);
  return draw_schedule(schedule, layout.pp, microbatches, schedule_costs(config), title);
}

}  // namespace shiftron
