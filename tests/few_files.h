// A bound on the files that this process may have open.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace shiftron {

// The number of files that may still be opened; as before at its end.
class FewFiles {
 public:
  explicit FewFiles(int files) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // the lowest that is free
    ::close(next);
    const rlimit now{static_cast<rlim_t>(next + files), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace shiftron
