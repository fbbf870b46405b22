// Every fault of a configuration.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace shiftron {

// What a command needs of the configuration: which keys are required, which cross checks apply.
enum class Use {
  train,     // everything
  dry_run,   // as train, but no data, no output directory
  dump,      // batches: data and batch sizes
  evaluate,  // evaluate, generate: the model and a layout
};

// Every fault, one line each ("heads 20 not divisible by tp 8 (model.heads: a.conf:3)"), reading_faults first.
std::vector<std::string> find_faults(const RunConfig& config, int ranks, Use use = Use::train);
// Throws one Error(bad_input) that lists all of find_faults().
void validate(const RunConfig& config, int ranks, Use use = Use::train);

}  // namespace shiftron
