// ForeignChoices: what was chosen for libraries means nothing here, apart from what goes wrong where it is adopted.
#pragma once

#include <string>

#include "core/check.h"

namespace shiftron {

class ForeignChoices : public Error {
 public:
  explicit ForeignChoices(const std::string& message) : Error(message, ExitCode::bad_input) {}
};

}  // namespace shiftron
