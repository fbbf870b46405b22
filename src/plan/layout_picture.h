// A picture of a layout in text: which rank holds what, and on which host.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "parallel/layout.h"

namespace shiftron {

// Stages × data-parallel copies with the ranks of each, then the hosts: at most 20 lines of at most 80 columns. If
// there is no room for all, the first and the last are shown. `hosts`: one per rank; empty if not known.
std::string layout_picture(const RunConfig& config, const ParallelLayout& layout,
                           const std::vector<std::string>& hosts);

// One line if tensor-parallel ranks, which wait for each other in every layer, are spread over several hosts; otherwise
// "".
std::string host_warning(const ParallelLayout& layout, const std::vector<std::string>& hosts);

}  // namespace shiftron
