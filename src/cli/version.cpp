// Version and commit come from CMake (cmake/version.cmake) as definitions of this file alone.
#include "cli/version.h"

#ifndef SHIFTRON_VERSION
#define SHIFTRON_VERSION "unknown"
#endif
#ifndef SHIFTRON_COMMIT
#define SHIFTRON_COMMIT "unknown"
#endif
#ifndef SHIFTRON_BACKENDS
#define SHIFTRON_BACKENDS "unknown"
#endif

namespace shiftron::cli {

std::string version_text() {
  return "shiftron " SHIFTRON_VERSION "\ncommit " SHIFTRON_COMMIT "\nbackends " SHIFTRON_BACKENDS "\n";
}

}  // namespace shiftron::cli
