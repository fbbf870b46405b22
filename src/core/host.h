// Which machine this is, and what its clock says, as texts for people and files.
#pragma once

#include <string>

namespace shiftron {

// What of its host a rank may use.
struct HostShare {
  int threads = 1;     // of the processor
  int local_rank = 0;  // its number among the ranks of this host, from 0: which GPU, where it computes on one
};

std::string host_name();

// By this host's wall clock.
double seconds_since_1970();

// UTC with milliseconds: "2026-11-22T02:34:35.123Z".
std::string now_text();

}  // namespace shiftron
