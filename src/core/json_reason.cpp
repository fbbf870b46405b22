// Removes "[json.exception.parse_error.101] ".
#include "core/json_reason.h"

namespace shiftron {

std::string json_reason(const std::exception& error) {
  const std::string message = error.what();
  const size_t bracket = message.find("] ");
  return bracket == std::string::npos ? message : message.substr(bracket + 2);
}

}  // namespace shiftron
