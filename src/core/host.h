// Which machine this is, and what its clock says, as texts for people and files.
#pragma once

#include <string>

namespace shiftron {

// What of its host a rank may use.
struct HostShare {
  int threads = 1;      // of the processor
  int local_rank = 0;   // its number among the ranks of this host, from 0: which GPU, where it computes on one
  int local_ranks = 1;  // how many these are
};

// At most so many ranks of a host share one of its GPUs.
constexpr int ranks_of_a_device(const HostShare& share, int devices) {
  return (share.local_ranks + devices - 1) / devices;
}

std::string host_name();

// By this host's wall clock.
double seconds_since_1970();

// UTC with milliseconds: "2026-11-22T02:34:35.123Z".
std::string now_text();

}  // namespace shiftron
