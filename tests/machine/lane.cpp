// One thread per queue, which runs while it has the turn. Turns and the lock are handed over by atomics and raw futex
// calls, and this file is not instrumented: ThreadSanitizer sees no order in them. Everything except operations is in
// Hidden.
#include "machine/lane.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "core/check.h"
#include "core/thread_without_signals.h"

namespace shiftron::machine {
namespace {

using sanitizer::Hidden;

void sleep_while(Word& word, uint32_t value, const timespec* limit = nullptr) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, limit, nullptr, 0);
}

void wake(Word& word, int sleepers) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0);
}

}  // namespace

void nap() {
  Word never = 0;
  const timespec limit = {0, 100'000};
  sleep_while(never, 0, &limit);
}

void sleep_while(Word& word, uint32_t value, long limit_microseconds) {
  const timespec limit = {0, limit_microseconds * 1000};
  sleep_while(word, value, &limit);
}

void wake_all(Word& word) { wake(word, INT_MAX); }

void FairLock::lock() {
  const uint32_t mine = next_++;
  for (uint32_t served = served_; served != mine; served = served_) sleep_while(served_, served);
}

void FairLock::unlock() {
  if (++served_ != next_) wake(served_, INT_MAX);
}

void Lane::take_turn() {
  if (!thread.joinable()) {
    thread = thread_without_signals([this] { work(); });
  }
  turn = 1;
  wake(turn, 1);
  while (turn != 0) sleep_while(turn, 1);
}

void Lane::end_thread() {
  if (!thread.joinable()) return;
  ends = true;
  turn = 1;
  wake(turn, 1);
  thread.join();
}

void Lane::work() {
  {
    Hidden hidden;
    Turns::of_this_thread() = this;
  }
  for (;;) {
    {
      Hidden hidden;
      while (turn != 1) sleep_while(turn, 0);
      if (ends) return;
    }
    execute(*items.front());
    Hidden hidden;
    items.front()->operation = nullptr;
    gave = false;
    turn = 0;
    wake(turn, 1);
  }
}

void Lane::execute(Item& item) {
  switch (item.kind) {
    case Item::Kind::operation:
      if (error) return;
      item.handed_over.acquire();
      try {
        item.operation();
      } catch (...) {
        Hidden hidden;
        if (!error) error = std::current_exception();
      }
      return;
    case Item::Kind::wait:
      if (error) return;
      item.place->moment.acquire();
      error = item.place->error;
      return;
    case Item::Kind::mark:
      item.place->moment.release();
      Hidden hidden;
      item.place->error = error;
      item.place->time = Clock::now();
      item.place->done = true;
  }
}

void Lane::give(const std::function<bool()>& until) {
  {
    Hidden hidden;
    gave = true;
    ready = until ? &until : nullptr;
    turn = 0;
    wake(turn, 1);
    while (turn != 1) sleep_while(turn, 0);
    ready = nullptr;
  }
  if (dropped) throw_crash("queue ", name, " was dropped");
}

}  // namespace shiftron::machine
