// ReceivedRows: where rows from a neighbouring stage land, received one message ahead of their use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/memory.h"
#include "parallel/communicator.h"

namespace shiftron {

// A ring of slots of its own: a message may come before the arena of its microbatch is free.
class ReceivedRows {
 public:
  // Rows [rows, columns] from rank `from` of `edge` (null: nothing is ever received), of which `in_use` are at most in use at
  // once; one more slot holds the message that comes next.
  ReceivedRows(Stream& stream, Communicator* edge, int from, const std::string& name, const MemoryPlan& plan,
               DType dtype, Shape shape, int in_use);
  void expect(int messages);  // that will be received from now on; posts the first
  Tensor next();              // the stream is ordered behind it; posts the one after it. In the order of their sending.
  // Bytes of a slot, as a run on meta measured them.
  void add_to(MemoryPlan& plan) const { plan[name_] = slots_.empty() ? 0 : slots_.front()->peak(); }

 private:
  void post();
  Stream& stream_;
  Communicator* edge_;
  int from_;
  std::string name_;
  DType dtype_;
  Shape shape_;
  std::vector<std::unique_ptr<Arena>> slots_;
  size_t slot_ = 0;  // of the next message to be posted
  int left_ = 0;     // messages that are not posted
  Tensor coming_;
  Work receive_;
};

}  // namespace shiftron
