// Environment variables that libraries read.
#pragma once

#include <string>

namespace shiftron {

// Sets the variable unless the user has, and returns its value. Ranks that are threads of one process may call it at
// the same time; no other thread may read the environment meanwhile.
std::string set_environment_default(const char* name, const std::string& value);

}  // namespace shiftron
