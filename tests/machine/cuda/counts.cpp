// Counts of threads.
#include "machine/cuda/counts.h"

#include <array>
#include <ostream>

namespace shiftron::machine {
namespace {

struct Kind {
  const char* name;
  int64_t Counts::*count;
};
constexpr std::array kKinds = {Kind{"event waits", &Counts::event_waits},
                               Kind{"stream waits", &Counts::stream_waits},
                               Kind{"device waits", &Counts::device_waits},
                               Kind{"device allocations", &Counts::device_allocations},
                               Kind{"pinned allocations", &Counts::pinned_allocations},
                               Kind{"frees", &Counts::frees},
                               Kind{"streams", &Counts::streams},
                               Kind{"events", &Counts::events}};

}  // namespace

Counts Counts::operator-(const Counts& before) const {
  Counts difference;
  for (const auto& [name, count] : kKinds) difference.*count = this->*count - before.*count;
  return difference;
}

std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  for (const auto& [name, count] : kKinds) out << name << " " << counts.*count << "  ";
  return out;
}

Counts& counts() {
  thread_local Counts own;
  return own;
}

}  // namespace shiftron::machine
