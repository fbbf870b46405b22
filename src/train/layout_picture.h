// A picture of a layout in text: which rank holds what, and on which host.
#pragma once

#include <string>
#include <vector>

#include "parallel/layout.h"
#include "train/run_config.h"

namespace shiftron {

// Stages × data-parallel copies with the ranks of each, then the hosts: lines of at most 80 columns, at most 20 of
// them; of what has no room the first and the last are shown. `hosts`: of each rank; empty where they are not known.
std::string layout_picture(const RunConfig& config, const ParallelLayout& layout,
                           const std::vector<std::string>& hosts);

// One line where tensor-parallel ranks, who wait for each other in every layer, lie on several hosts; else "".
std::string host_warning(const ParallelLayout& layout, const std::vector<std::string>& hosts);

}  // namespace shiftron
