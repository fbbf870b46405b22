// SystemError: the machine refused, apart from what a file holds or lacks.
#pragma once

#include <string>

#include "core/check.h"

namespace shiftron {

// Too many open files, no memory, no right, a disk or a server that fails, a link whose end is not there: it says
// nothing of the file's content.
class SystemError : public Error {
 public:
  explicit SystemError(const std::string& message, ExitCode code = ExitCode::crash) : Error(message, code) {}
};

// For who makes another fault of an Error, of a file's content: throws again what the machine refused, as Error(crash).
inline void pass_on_refusal(const Error& error) {
  if (dynamic_cast<const SystemError*>(&error) != nullptr) throw SystemError(error.what());
}

// Whether a failed call with this errno says that another path would do: one that leads nowhere, or where one may not.
bool is_of_the_path(int error);

// Whether a failed call with this errno is of the kind of SystemError: all that speaks neither of the path nor of room.
bool is_of_the_system(int error);

// What to do about it, behind a message; "" where there is nothing to say.
const char* advice_on(int error);

}  // namespace shiftron
