// ReceivedRows: where rows from another stage land, received one message ahead of their use.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/memory.h"
#include "parallel/communicator.h"

namespace shiftron {

// Of one channel. Slots of its own, in rings: a message may come before the arena of its microbatch is free. What lies in a
// ring is done with in the order in which it came.
class ReceivedRows {
 public:
  // Rows [rows, columns] from rank 0 of `channel`.
  ReceivedRows(Stream& stream, Communicator& channel, const std::string& name, const MemoryPlan& plan, DType dtype,
               Shape shape)
      : stream_(stream), channel_(channel), name_(name), plan_(plan), dtype_(dtype), shape_(shape) {}
  // Of ring `ring` `in_use` slots are at most in use at once; one more holds the message that comes next. `alike`: on meta
  // the ring has one message in a step, and one slot stands for all.
  void add_ring(int ring, int in_use, bool alike);
  // The rings of the messages that will be received from now on, in their order; posts the first.
  void expect(std::vector<int> rings);
  Tensor next();  // the stream is ordered behind it; posts the one after it
  // Bytes of a slot, as a run on meta measured them.
  void add_to(MemoryPlan& plan) const { plan[name_] = rings_.begin()->second.slots.front()->peak(); }

 private:
  struct Ring {
    std::vector<std::unique_ptr<Arena>> slots;
    size_t next = 0;  // for the next message to be posted
  };
  void post();
  Stream& stream_;
  Communicator& channel_;
  std::string name_;
  const MemoryPlan plan_;
  DType dtype_;
  Shape shape_;
  std::map<int, Ring> rings_;
  std::deque<int> left_;  // rings of messages that are not posted
  Tensor coming_;
  Work receive_;
};

}  // namespace shiftron
