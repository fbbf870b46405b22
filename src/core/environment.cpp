#include "core/environment.h"

#include <cstdlib>
#include <mutex>

namespace shiftron {

std::string set_environment_default(const char* name, const std::string& value) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  setenv(name, value.c_str(), 0);
  return std::getenv(name);
}

}  // namespace shiftron
