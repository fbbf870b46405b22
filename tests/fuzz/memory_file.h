// An input as a file: in memory, with a path.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/input.h"

namespace shiftron::fuzz {

class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes = {}) : file_(::memfd_create("input", MFD_CLOEXEC)) {
    require(file_ >= 0, "there is memory for an input");
    replace(bytes);
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  void replace(std::string_view bytes) const {
    require(::ftruncate(file_, 0) == 0 &&
                ::pwrite(file_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
            "there is memory for an input");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace shiftron::fuzz
