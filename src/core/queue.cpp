// Turns of operations.
#include "core/queue.h"

namespace shiftron {

Turns*& Turns::of_this_thread() {
  thread_local Turns* turns = nullptr;
  return turns;
}

bool let_others_run() {
  Turns* turns = Turns::of_this_thread();
  if (turns == nullptr) return false;
  turns->give();
  return true;
}

}  // namespace shiftron
