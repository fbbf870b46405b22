// Checks that all ranks of a job were given the same configuration, program, data and checkpoint before they are used.
#pragma once

#include <string>
#include <vector>

#include "parallel/control_plane.h"

namespace shiftron {

// One thing that this rank was given.
struct RankSetting {
  std::string key;    // "optimizer.learning_rate"; unique in a list
  std::string value;  // readable; "": no value
};

// Every rank calls it with its own list. Throws Error(bad_input) on every rank if any two lists differ. Rank 0 reports
// the first ranks that differ from it with their hosts, the keys and both values, and how many more differ. Ranks send
// hashes; only the lists of reported ranks are sent. No value may differ between ranks: no documented use needs that.
void require_same_settings(ControlPlane& world, const std::vector<RankSetting>& given);

}  // namespace shiftron
