// How much longer than on an idle, current machine the tests wait before they call something a hang.
#pragma once

#include <cstdlib>

namespace shiftron {

// From the environment, as in time_scale.py.
inline double scaled(double seconds) {
  const char* scale = std::getenv("SHIFTRON_TEST_TIME_SCALE");
  return seconds * (scale == nullptr ? 1 : std::atof(scale));
}

}  // namespace shiftron
