// A whole training run of one rank: data, resume, the loop over steps, saves, stops.
#pragma once

#include "core/check.h"
#include "train/run_environment.h"

namespace shiftron {

// Trains to the last step, a stop or an error. Every rank of the world calls it with one valid configuration.
// Returns done or stopped; throws Error otherwise.
ExitCode run_training(const RunConfig& config, const RunEnvironment& environment);

}  // namespace shiftron
