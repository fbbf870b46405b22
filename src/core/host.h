// The name of this machine and the time of its clock, as text for people and files.
#pragma once

#include <string>

namespace shiftron {

// The part of its host that a rank may use.
struct HostShare {
  int threads = 1;     // of the CPU
  int local_rank = 0;  // its number among the ranks of this host, from 0; selects its GPU
};

std::string host_name();

// By this host's wall clock.
double seconds_since_1970();

// UTC with milliseconds: "2026-11-22T02:34:35.123Z".
std::string now_text();

}  // namespace shiftron
