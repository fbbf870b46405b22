// ReceivedRows: where rows from another stage land, received one message ahead of their use.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/memory.h"
#include "parallel/communicator.h"

namespace shiftron {

// Of one channel. Slots of its own: a message may come before the arena of its microbatch is free.
class ReceivedRows {
 public:
  // Rows [rows, columns] from rank 0 of `channel`, in one of `slots` places. On meta one stands for all.
  ReceivedRows(Stream& stream, Communicator& channel, const std::string& name, const MemoryPlan& plan, int slots,
               DType dtype, Shape shape);
  // The slots of the messages that will be received from now on, in their order. Where they do not come, rows of random
  // numbers stand for them.
  void expect(const std::vector<int>& slots, bool come = true);
  void go_ahead();  // posts the first of them that is left; until then each is posted where it is used
  Tensor next();    // the stream is ordered behind it; posts the one after it, if it may go ahead
  int slots() const { return count_; }
  // Bytes of a slot, as a run on meta measured them.
  void add_to(MemoryPlan& plan) const { plan[slots_.front()->name()] = slots_.front()->peak(); }

 private:
  void post();
  Stream& stream_;
  Communicator& channel_;
  DType dtype_;
  Shape shape_;
  int count_;
  std::vector<std::unique_ptr<Arena>> slots_;
  bool come_ = true, ahead_ = false;
  std::deque<int> left_;  // slots of messages that are not posted
  Tensor planned_;        // on meta
  Tensor coming_;
  Work receive_;
};

}  // namespace shiftron
