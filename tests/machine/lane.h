// What a queue of the late scheduler consists of: items, the places that marks stand for, and a thread that has the
// turn or waits for it. Only included by files that are not instrumented.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "core/queue.h"
#include "core/sanitizer.h"

namespace shiftron::machine {

class World;
struct Lane;

using Clock = std::chrono::steady_clock;
using Word = std::atomic<uint32_t>;

void nap();  // 100 µs
void sleep_while(Word& word, uint32_t value, long limit_microseconds);
void wake_all(Word& word);

// First come, first served: a host that drives takes it again and again.
class FairLock {
 public:
  void lock();
  void unlock();
  bool wanted() const { return next_ != served_ + 1; }  // by another than its holder

 private:
  Word next_ = 0, served_ = 0;
};

// An address that stands for a point in time, to ThreadSanitizer.
struct Moment {
  void release() { sanitizer::release(this); }
  void acquire() { sanitizer::acquire(this); }
  char address = 0;
};

struct Place final : Mark {
  Place(std::shared_ptr<World> of, std::shared_ptr<Lane> at, int64_t n)
      : world(std::move(of)), lane(std::move(at)), number(n) {}
  ~Place() override {
    sanitizer::Hidden hidden;
    error = nullptr;
    lane.reset();
    world.reset();
  }
  bool reached() override;
  void wait() override;
  double seconds_since(const Mark& earlier) const override;

  std::shared_ptr<World> world;
  std::shared_ptr<Lane> lane;
  const int64_t number;
  Moment moment;
  std::exception_ptr error;  // this and the time are written before `done`
  Clock::time_point time;
  std::atomic<bool> done = false;  // or failed
  std::atomic<int> asked = 0;      // without success
};

struct Item {
  enum class Kind { operation, mark, wait } kind;
  std::function<void()> operation;
  std::shared_ptr<Place> place;  // to reach, or to wait for
  int64_t number = 0;            // of its kind in its queue
  uint64_t age = 0;              // in the order of all queues
  bool begun = false;
  Moment handed_over;
};

// A queue's items, and the thread that runs them; all under the world's lock, which the one who gives the turn holds.
struct Lane final : Turns {
  explicit Lane(std::string called) : name(std::move(called)) {}

  void take_turn();  // of the lane's thread, by the holder of the lock; returns when it is given back
  void end_thread();
  bool can_go_on() const {
    if (items.empty()) return false;
    const Item& item = *items.front();
    return item.kind != Item::Kind::wait || error || item.place->done;
  }

  void work();
  void execute(Item& item);
  void give(const std::function<bool()>& ready) override;

  const std::string name;
  std::deque<std::unique_ptr<Item>> items;
  int64_t counts[3] = {};    // of items handed over, by kind
  std::exception_ptr error;  // until drop()
  bool fast = false;         // in the uneven order
  uint64_t tried = 0;        // the attempt in which its operation gave the turn
  bool gave = false;         // how the turn came back
  const std::function<bool()>* ready = nullptr;  // what its operation waits for, where it said so
  bool dropped = false, ends = false;
  Word turn = 0;  // 1: the thread's
  std::thread thread;
};

}  // namespace shiftron::machine
