// One error for a list of faults.
#pragma once

#include <string>
#include <vector>

namespace shiftron {

// Throws one Error(bad_input) that lists all `faults` of `place`, if there are any, and `advice`.
void refuse_faults(const std::vector<std::string>& faults, const std::string& place, const std::string& advice = "");

}  // namespace shiftron
