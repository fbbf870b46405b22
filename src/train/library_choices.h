// Which algorithms the libraries of a GPU use: chosen at a run's start, the same on all ranks, and kept for later
// starts, since results depend on them.
#pragma once

#include <string>

#include "core/log.h"
#include "data/loader.h"
#include "train/batches.h"
#include "train/trainer.h"

namespace shiftron {

// For each shape, every rank takes the choice of the lowest rank that has one; ranks on another kind of device keep
// their own. Returns rank 0's choices as JSON; "" if there are no libraries.
std::string agree_on_choices(ControlPlane& world, Libraries& libraries);

// Adopts `kept` (JSON; "" = nothing), times the candidates for other shapes in a pass that changes nothing, if
// train.deterministic is off, and makes all ranks agree. `source` names where `kept` comes from. Choices for another
// device or library version are logged and chosen again. Every rank calls it; on a CPU it does nothing.
std::string choose_algorithms(const RunConfig& config, Trainer& trainer, const BatchReader& read, ControlPlane& world,
                              const std::string& kept, const std::string& source, Log& log);

}  // namespace shiftron
