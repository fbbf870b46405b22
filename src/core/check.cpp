// Errors from other exceptions and from failed CHECKs.
#include "core/check.h"

#include <cstring>
#include <filesystem>
#include <new>

#include "core/system_error.h"

namespace shiftron {

Error as_error(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) {
    return Error("not enough memory; free some, or use smaller sizes", ExitCode::bad_input);
  }
  if (const auto* error = dynamic_cast<const std::filesystem::filesystem_error*>(&exception)) {
    const int number = error->code().value();
    const char* advice = advice_on(number);
    const std::string what = error->path1().string() + ": " + error->code().message();
    return Error(what + (*advice != 0 ? advice : "; check the path"),
                 is_path_error(number) ? ExitCode::bad_input : ExitCode::crash);
  }
  return Error(exception.what(), ExitCode::crash);
}

namespace detail {

void throw_check_failure(const char* file, int line, const char* condition, const std::string& message) {
  const char* folder = std::strstr(file, "src/");
  throw Error(concatenate(folder != nullptr ? folder : file, ":", line, ": ", condition, " does not hold",
                          message.empty() ? "" : ": ", message),
              ExitCode::crash);
}

}  // namespace detail
}  // namespace shiftron
