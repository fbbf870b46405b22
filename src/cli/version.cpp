// Version and commit come from CMake (cmake/version.cmake) to this file alone.
#include "cli/version.h"

#include "core/has_cuda.h"
#include "core/stream.h"
#include "parallel/versions_cuda.h"

#if __has_include("cli/commit.h")
#include "cli/commit.h"
#endif
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
  return "shiftron " SHIFTRON_VERSION "\ncommit " SHIFTRON_COMMIT "\nbackends " + backends_text() + "\n";
}

std::string backends_text() {
  std::string text = SHIFTRON_BACKENDS;
  if constexpr (kHasCuda) text += " (" + cuda::versions() + ")";
  return text;
}

}  // namespace shiftron::cli
