// Open, lock, then check that the name still refers to the same file.
#include "core/file_lock.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "core/check.h"

namespace shiftron {

std::optional<FileLock> FileLock::take(const std::string& path, bool make) {
  const auto has_gone = [&] {
    std::error_code ignored;
    return !std::filesystem::exists(make ? parent_directory(path) : path, ignored);
  };
  if (has_gone()) return {};
  FileDescriptor file;
  try {
    file = FileDescriptor::open_for_appending(path, make);
  } catch (const Error&) {
    if (has_gone()) return {};
    throw;
  }
  int result = 0;
  do {
    result = ::flock(file.get(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EWOULDBLOCK) return {};
  struct stat mine {}, there {};  // another holder may have removed it in between
  if (::fstat(file.get(), &mine) != 0 || ::stat(path.c_str(), &there) != 0) return {};
  if (mine.st_ino != there.st_ino || mine.st_dev != there.st_dev) return {};
  return FileLock(std::move(file));
}

}  // namespace shiftron
