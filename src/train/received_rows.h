// ReceivedRows: memory for rows from another stage, received one message ahead of their use.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/memory.h"
#include "parallel/communicator.h"

namespace shiftron {

// For one channel. It has its own slots because a message may come before the arena of its microbatch is free.
class ReceivedRows {
 public:
  // Receives rows [rows, columns] from rank 0 of `channel`, into one of `slots` slots. On meta one stands for all.
  ReceivedRows(Stream& stream, Communicator& channel, const std::string& name, const MemoryPlan& plan, int slots,
               DType dtype, Shape shape);
  // The slots of the messages that will be received from now on, in order. If `come` is false, none come, and rows of
  // random numbers replace them.
  void expect(const std::vector<int>& slots, bool come = true);
  void start_receiving_ahead();  // posts the next receive now; until then each is posted when it is used
  Tensor next();  // the stream waits for it; posts the next receive if start_receiving_ahead() was called
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
  std::deque<int> left_;  // slots of messages whose receives are not posted
  Tensor planned_;        // on meta
  Tensor coming_;
  Work receive_;
};

}  // namespace shiftron
