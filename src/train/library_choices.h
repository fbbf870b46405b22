// Which algorithms the libraries of a GPU take: chosen at a run's start, alike on all ranks, kept for later starts, since
// bits depend on them.
#pragma once

#include <string>

#include "core/log.h"
#include "data/loader.h"
#include "train/batches.h"
#include "train/trainer.h"

namespace shiftron {

// Every rank takes for each shape the choice of the lowest rank that has one; ranks on another kind of device keep their
// own. Returns what rank 0 has, as JSON; "" where there are no libraries.
std::string agree_on_choices(ControlPlane& world, Libraries& libraries);

// Adopts `kept` (JSON; "" = nothing), times the candidates of other shapes in a pass that changes nothing, unless
// train.deterministic=repeat, and agrees. `source` names where `kept` comes from. Choices of another device or version
// of a library are told to `log` and made anew. Every rank calls it; nothing is done on a CPU.
std::string choose_algorithms(const RunConfig& config, Trainer& trainer, const BatchReader& read, ControlPlane& world,
                              const std::string& kept, const std::string& source, Log& log);

}  // namespace shiftron
