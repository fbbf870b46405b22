// Queue: operations of a device, done in order and later, by somebody else. A Stream without a queue does everything at
// once, on the thread that asks.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace shiftron {

// A place in a queue's order. May be used by any thread, and outlive its queue.
class Mark {
 public:
  virtual ~Mark() = default;
  virtual bool reached() = 0;  // never waits
  // Returns when all that stood before it is done; throws what went wrong with any of it.
  virtual void wait() = 0;
  virtual double seconds_since(const Mark& earlier) const = 0;  // between timed marks of one device that are reached
};

// One thread hands over; others do the work. An operation must not hand over, mark or wait.
class Queue {
 public:
  virtual ~Queue() = default;                                           // drops
  virtual std::unique_ptr<Queue> sibling(const std::string& name) = 0;  // another one of the same device
  // Done behind everything handed over before. An exception of it drops what stands behind it, and reaches whoever
  // waits for a mark there, on this queue or on one that waits for it.
  virtual void run(std::function<void()> operation) = 0;
  // Behind everything handed over so far. `timed`: seconds_since() may be asked, which costs a device something.
  virtual std::shared_ptr<Mark> mark(bool timed = false) = 0;
  // What is handed over from now on is done behind the mark, of this queue or another.
  virtual void wait(std::shared_ptr<Mark> mark) = 0;
  // Forgets what has not begun and returns when nothing of this queue runs any more: let_others_run() throws in an
  // operation that waits. Its marks fail.
  virtual void drop() noexcept = 0;
};

// Inside an operation of a queue: gives the turn to other operations, and returns true when it is back, behind a
// ready() that was true, if there is one (any thread asks it); elsewhere false, at once. What waits for a peer in a
// queue's operation calls this in a loop instead of sleeping.
bool let_others_run(const std::function<bool()>& ready = {});

// Whoever runs a queue's operations on the calling thread sets this around them.
class Turns {
 public:
  virtual void give(const std::function<bool()>& ready) = 0;  // throws to cancel the operation
  static Turns*& of_this_thread();

 protected:
  ~Turns() = default;
};

}  // namespace shiftron
