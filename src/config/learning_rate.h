// The learning rate of a step: warm-up, then constant, cosine, linear or wsd.
#pragma once

#include <cstdint>

#include "config/sections.h"

namespace shiftron {

// Rate that update `step` (from 1) of a run of `steps` uses; after the fall it stays at final_fraction * peak.
double learning_rate(const OptimizerSection& optimizer, int64_t steps, int64_t step);

// Steps over which the rate falls: decay_steps, or what 0 means for the schedule; 0 if the rate does not fall.
int64_t effective_decay_steps(const OptimizerSection& optimizer, int64_t steps);

}  // namespace shiftron
