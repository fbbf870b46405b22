// A lock that ends with its process: flock(2) on a file of its own. For work in a directory that will be renamed.
// Otherwise use core/directory_lock.h, which also works on network file systems without flock.
#pragma once

#include <optional>
#include <string>

#include "core/file.h"

namespace shiftron {

class FileLock {
 public:
  // Creates a missing file unless `make` is false. Nothing if another process, or another lock of this one, holds it,
  // or if its directory (or the file, if it is not created) has gone. Throws Error(crash).
  static std::optional<FileLock> take(const std::string& path, bool make = true);

 private:
  explicit FileLock(FileDescriptor file) : file_(std::move(file)) {}
  FileDescriptor file_;  // closing it releases the lock
};

}  // namespace shiftron
