// Errors from failed CHECKs.
#include "core/check.h"

#include <cstring>

namespace shiftron {

namespace detail {

void throw_check_failure(const char* file, int line, const char* condition, const std::string& message) {
  const char* folder = std::strstr(file, "src/");
  throw Error(concatenate(folder != nullptr ? folder : file, ":", line, ": ", condition, " does not hold",
                          message.empty() ? "" : ": ", message),
              ExitCode::crash);
}

}  // namespace detail
}  // namespace shiftron
