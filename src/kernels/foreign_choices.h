// ForeignChoices: the choices are not valid for these libraries or this device. Its type tells it apart from errors
// while choices are adopted.
#pragma once

#include <string>

#include "core/check.h"

namespace shiftron {

class ForeignChoices : public Error {
 public:
  explicit ForeignChoices(const std::string& message) : Error(message, ExitCode::bad_input) {}
};

}  // namespace shiftron
