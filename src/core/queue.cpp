// Turns of operations.
#include "core/queue.h"

namespace shiftron {

Turns*& Turns::of_this_thread() {
  thread_local Turns* turns = nullptr;
  return turns;
}

bool yield_to_other_operations(const std::function<bool()>& ready) {
  Turns* turns = Turns::of_this_thread();
  if (turns == nullptr) return false;
  turns->give(ready);
  return true;
}

}  // namespace shiftron
