// What all ranks of a job must have been given alike: configuration, program, data, checkpoint. Compared before it is
// used.
#pragma once

#include <string>
#include <vector>

#include "parallel/control_plane.h"

namespace shiftron {

// One thing that this rank was given.
struct GivenValue {
  std::string key;    // "optimizer.learning_rate"; unique in a list
  std::string value;  // as a person reads it; "": nothing
};

// Every rank calls it with its own list. Throws Error(bad_input) on every rank where two lists differ. Rank 0 reports:
// the first ranks that differ from it with their hosts, the keys and both values, and how many more differ. Ranks send
// hashes; a list travels only where it is named. No value may differ between ranks: no documented use needs one.
void require_given_alike(ControlPlane& world, const std::vector<GivenValue>& given);

}  // namespace shiftron
