#include "core/file_identity.h"

#include <sys/stat.h>

namespace shiftron {

std::optional<FileIdentity> file_identity(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return FileIdentity{status.st_dev, status.st_ino};
}

}  // namespace shiftron
