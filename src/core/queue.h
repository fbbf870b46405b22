// Queue: operations of a device, run in order and asynchronously. A Stream without a queue does everything at once, on
// the calling thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace shiftron {

// A point in a queue's order. May be used by any thread, and outlive its queue.
class Mark {
 public:
  virtual ~Mark() = default;
  virtual bool reached() = 0;  // never waits
  // Returns when everything before it is done; throws what any of it threw.
  virtual void wait() = 0;
  virtual double seconds_since(const Mark& earlier) const = 0;  // between reached, timed marks of one device
};

// One thread enqueues; others do the work. An operation must not enqueue, mark or wait.
class Queue {
 public:
  virtual ~Queue() = default;                                           // calls drop()
  virtual std::unique_ptr<Queue> sibling(const std::string& name) = 0;  // another one of the same device
  // Runs after everything enqueued before. If it throws, the operations after it are dropped, and the exception reaches
  // those that wait for a mark after it, on this queue or on one that waits for it.
  virtual void run(std::function<void()> operation) = 0;
  // A mark after everything enqueued so far. `timed`: seconds_since() may be called, which costs some time on a device.
  virtual std::shared_ptr<Mark> mark(bool timed = false) = 0;
  // What is enqueued from now on runs after the mark, of this queue or another.
  virtual void wait(std::shared_ptr<Mark> mark) = 0;
  // Discards what has not begun and returns when nothing of this queue runs any more: yield_to_other_operations()
  // throws in an operation that waits. Its marks fail.
  virtual void drop() noexcept = 0;
};

// Inside an operation of a queue: yields to other operations and returns true when the operation may continue, after
// ready() (if given; any thread may call it) returned true. Elsewhere: returns false at once. An operation that waits
// for a peer calls this in a loop instead of sleeping.
bool yield_to_other_operations(const std::function<bool()>& ready = {});

// Set around the operations of a queue by the code that runs them on the calling thread.
class Turns {
 public:
  virtual void give(const std::function<bool()>& ready) = 0;  // throws to cancel the operation
  static Turns*& of_this_thread();

 protected:
  ~Turns() = default;
};

}  // namespace shiftron
