// Version and commit come from CMake (cmake/version.cmake) to this file alone.
#include "cli/version.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdint>
#include <cstring>

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
namespace {

// The note that the linker leaves of the program's bytes (--build-id), in hexadecimal digits; "unknown" without one.
std::string build_id() {
  std::string id = "unknown";
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* found) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr)& header = object->dlpi_phdr[i];
          if (header.p_type != PT_NOTE) continue;
          const auto* at = reinterpret_cast<const uint8_t*>(object->dlpi_addr + header.p_vaddr);
          const uint8_t* const end = at + header.p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            const auto& note = *reinterpret_cast<const ElfW(Nhdr)*>(at);
            const auto padded = [](size_t bytes) { return (bytes + 3) & ~size_t{3}; };
            const uint8_t* const name = at + sizeof note;
            const uint8_t* const bytes = name + padded(note.n_namesz);
            at = bytes + padded(note.n_descsz);
            if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || std::memcmp(name, "GNU", 4) != 0) continue;
            *static_cast<std::string*>(found) = fmt::format("{:02x}", fmt::join(bytes, bytes + note.n_descsz, ""));
            return 1;
          }
        }
        return 1;  // the program is the first object; its libraries have notes of their own
      },
      &id);
  return id;
}

}  // namespace

std::string version_text() {
  return "shiftron " SHIFTRON_VERSION "\ncommit " SHIFTRON_COMMIT "\nbackends " + backends_text() + "\n";
}

std::string commit_text() {
  return "shiftron " SHIFTRON_VERSION ", commit " SHIFTRON_COMMIT;
}

std::string build_text() {
  return commit_text() + ", build " + build_id();
}

std::string backends_text() {
  std::string text = SHIFTRON_BACKENDS;
  if constexpr (kHasCuda) text += " (" + cuda::versions() + ")";
  return text;
}

}  // namespace shiftron::cli
