// Where the tests' benchmark items are.
#pragma once

#include <string>

namespace shiftron::testing {

inline const std::string kTaskData = std::string(SHIFTRON_SOURCE_DIR) + "/tests/evaluate/data";

}  // namespace shiftron::testing
