// SystemError: a failure of the machine, not of a file's content.
#pragma once

#include <string>

#include "core/check.h"

namespace shiftron {

// Too many open files, no memory, no permission, a disk or server that fails, a dangling link: it says nothing about
// the file's content.
class SystemError : public Error {
 public:
  explicit SystemError(const std::string& message, ExitCode code = ExitCode::crash) : Error(message, code) {}
};

// For code that turns Errors into other errors about a file's content: rethrows a failure of the machine as
// Error(crash).
inline void rethrow_system_error(const Error& error) {
  if (dynamic_cast<const SystemError*>(&error) != nullptr) throw SystemError(error.what());
}

// Converts an exception: lack of memory and bad paths become bad_input, because the user can fix them; the rest is a
// crash.
Error as_error(const std::exception& exception);

// Whether a failed call with this errno might succeed on another path: this one leads nowhere or is not permitted.
bool is_path_error(int error);

// Whether a failed call with this errno is a SystemError: denied permission, or what concerns neither the path nor
// space.
bool is_system_error(int error);

// Advice to append to a message; "" if there is none.
const char* advice_on(int error);

}  // namespace shiftron
