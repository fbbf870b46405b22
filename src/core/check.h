// CHECK: conditions that stay in release builds and throw Error with named values.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace shiftron {

// What the process returns; launchers act on these numbers.
enum class ExitCode : int {
  done = 0,
  unequal = 1,      // `checkpoint diff` found a difference
  crash = 70,       // unexpected failure
  hang = 71,        // a rank waited past its deadline, or lost a peer
  non_finite = 72,  // too many non-finite steps in a row
  silent_corruption = 73,
  no_checkpoint = 74,  // steps exist, none is valid
  stopped = 75,        // stopped at a saved step: requeue me
  bad_input = 76,      // configuration or data at fault
  do_not_requeue = 93,
};

// A failure with a message for the user and the exit code for main(). An empty message: it has been reported elsewhere.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, ExitCode code) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

namespace detail {
template <typename... Parts>
std::string concatenate(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}
[[noreturn]] void throw_check_failure(const char* file, int line, const char* condition, const std::string& message);
}  // namespace detail

// Throws Error(bad_input): the user can fix it. Parts are streamed one after another.
template <typename... Parts>
[[noreturn]] void throw_bad_input(const Parts&... parts) {
  throw Error(detail::concatenate(parts...), ExitCode::bad_input);
}
// Throws Error(crash): a fault of the program or of the machine.
template <typename... Parts>
[[noreturn]] void throw_crash(const Parts&... parts) {
  throw Error(detail::concatenate(parts...), ExitCode::crash);
}

}  // namespace shiftron

// CHECK(condition, parts...): an invariant of the program; on failure Error(crash) with file, line and the parts.
#define CHECK(condition, ...)                                                                \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::shiftron::detail::throw_check_failure(__FILE__, __LINE__, #condition,                \
                                              ::shiftron::detail::concatenate(__VA_ARGS__)); \
  } while (false)
