// What libraries read from the environment of the process.
#pragma once

#include <string>

namespace shiftron {

// Sets it where the user has not, and returns what it is. Ranks that are threads of one process may call it at once; a
// thread that reads the environment meanwhile may not.
std::string set_environment_default(const char* name, const std::string& value);

}  // namespace shiftron
