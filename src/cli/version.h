// What `shiftron --version` prints.
#pragma once

#include <string>

namespace shiftron::cli {

// Version, commit ("unknown" without git) and compiled backends, one line each.
std::string version_text();
std::string commit_text();  // version and commit, on one line
// Version, commit and the linker's hash of this very program, on one line: two builds of a commit differ in it.
std::string build_text();
std::string backends_text();  // "cpu (oneDNN, MPI), cuda (CUDA 13.0, …)"

}  // namespace shiftron::cli
