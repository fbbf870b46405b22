// What the processes of a mutated build share: which mutant is selected and which ones were reached.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "mutation.h"

namespace shiftron::mutation {

// SHIFTRON_MUTANT: the number of a mutant, or `record`.
const int selected = [] {
  const char* text = std::getenv("SHIFTRON_MUTANT");
  if (text == nullptr) return 0;
  return std::string_view(text) == "record" ? -1 : std::atoi(text);
}();

// A shared mapping, so that processes that are killed and children of a fork are recorded too.
const Reached& reached() {
  static const Reached mapped = []() -> Reached {
    const char* path = std::getenv("SHIFTRON_MUTATION_REACHED");
    const int file = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || ::fstat(file, &status) != 0) return {};
    void* bytes = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (bytes == MAP_FAILED) return {};
    return {static_cast<unsigned char*>(bytes), static_cast<long>(status.st_size)};
  }();
  return mapped;
}

bool record(int number) {
  const Reached& all = reached();
  if (number < all.count && all.bytes[number] == 0) all.bytes[number] = 1;
  return false;
}

}  // namespace shiftron::mutation
