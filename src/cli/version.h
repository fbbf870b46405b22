// What `shiftron --version` prints.
#pragma once

#include <string>

namespace shiftron::cli {

// Version, commit ("unknown" without git) and compiled backends, one line each.
std::string version_text();
std::string backends_text();  // "cpu (oneDNN, MPI), cuda (CUDA 13.0, …)"

}  // namespace shiftron::cli
