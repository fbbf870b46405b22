// What a run says of itself at its start.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "parallel/layout.h"

namespace shiftron {

// "section: name=value …", a line for each section with a key that was given and differs from its default; lines are
// indented by two columns.
std::string given_settings(const RunConfig& config);

// Several lines of at most 100 columns: the run's directory, what differs from the defaults, the parameters, the tokens
// that it will read, ranks and devices. `hosts`: one per rank. `threads`: of each rank.
std::string start_text(const RunConfig& config, const ParallelLayout& layout, const std::vector<std::string>& hosts,
                       int threads);

}  // namespace shiftron
