// Asked by a mapping that is given back.
#include "core/host_memory.h"

#include <sys/mman.h>

#include <cstddef>

namespace shiftron {

bool has_memory(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* const room = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  ::munmap(room, size);
  return true;
}

}  // namespace shiftron
