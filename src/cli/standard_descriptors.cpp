// stdin, stdout and stderr as the parent process left them.
#include "cli/standard_descriptors.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "core/check.h"

namespace shiftron::cli {

void open_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is this one.
    if (open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0)
      throw_crash("descriptor ", descriptor, " is closed, and /dev/null cannot be opened instead");
  }
}

void write_to_stdout(const std::string& text) {
  std::cout.flush();
  for (size_t written = 0; written < text.size() && std::cout;) {
    const ssize_t now = ::write(STDOUT_FILENO, text.data() + written, text.size() - written);
    if (now > 0) written += static_cast<size_t>(now);
    if (now < 0 && errno != EINTR) std::cout.setstate(std::ios::badbit);
  }
}

bool stdout_reader_is_gone() {
  pollfd pipe{STDOUT_FILENO, POLLOUT, 0};
  return poll(&pipe, 1, 0) == 1 && (pipe.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace shiftron::cli
