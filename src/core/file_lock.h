// A lock that its process cannot leave behind: flock(2) on a file of its own. For work in a directory that will be renamed;
// else core/directory_lock.h, which also holds where a network file system knows no such locks.
#pragma once

#include <optional>
#include <string>

#include "core/file.h"

namespace shiftron {

class FileLock {
 public:
  // Makes the file where it is missing, unless `make` is false. Nothing where another process, or another lock of this
  // one, holds it, or its directory (or the file that is not made) has gone. Throws Error(crash).
  static std::optional<FileLock> take(const std::string& path, bool make = true);

 private:
  explicit FileLock(FileDescriptor file) : file_(std::move(file)) {}
  FileDescriptor file_;  // closing it releases the lock
};

}  // namespace shiftron
