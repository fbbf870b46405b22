// The virtual stages of a run's pipeline: what they hold, and how much time they take per microbatch.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "parallel/layout.h"
#include "parallel/schedule_times.h"

namespace shiftron {

// Layers of each, in the model's order; the first one also has the embedding, the last one the head.
std::vector<Range> virtual_stage_layers(const RunConfig& config);

// In thirds of a layer: its forward, and each half of its backward. A head computes all of its gradients in forward.
ScheduleCosts schedule_costs(const RunConfig& config);

// The schedule of a run as SVG. Throws Error(bad_input) if it has too many actions to draw.
std::string draw_run(const RunConfig& config, const ParallelLayout& layout);

}  // namespace shiftron
