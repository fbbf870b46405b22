// Receives posted ahead.
#include "train/received_rows.h"

#include <utility>

#include "kernels/timing.h"

namespace shiftron {

ReceivedRows::ReceivedRows(Stream& stream, Communicator& channel, const std::string& name, const MemoryPlan& plan,
                           int slots, DType dtype, Shape shape)
    : stream_(stream), channel_(channel), dtype_(dtype), shape_(shape), count_(slots) {
  const bool planned = stream.device == DeviceKind::meta;
  const int made = planned ? 1 : slots;
  for (int i = 0; i < made; ++i) {
    slots_.push_back(std::make_unique<Arena>(stream, name, plan, "activations", slots / made));
  }
  if (planned) planned_ = slots_.front()->allocate(dtype, shape);  // used whether a message comes or not
}

void ReceivedRows::expect(const std::vector<int>& slots, bool come) {
  CHECK(left_.empty() && !coming_.defined(), slots_.front()->name(), ": ", left_.size(),
        " messages of before have not been received");
  left_.assign(slots.begin(), slots.end());
  come_ = come;
  ahead_ = false;
}

void ReceivedRows::start_receiving_ahead() {
  ahead_ = true;
  if (!coming_.defined()) post();
}

void ReceivedRows::post() {
  if (left_.empty()) return;
  const auto slot = static_cast<size_t>(left_.front());
  left_.pop_front();
  coming_ = planned_;
  if (!planned_.defined()) {
    slots_.at(slot)->release();
    coming_ = slots_.at(slot)->allocate(dtype_, shape_);
  }
  if (come_)
    receive_ = channel_.recv(stream_, coming_, 0);
  else
    fill_random(stream_, coming_);
}

Tensor ReceivedRows::next() {
  if (!coming_.defined()) post();
  CHECK(coming_.defined(), slots_.front()->name(), ": no message is expected");
  receive_.wait(stream_);
  const Tensor rows = std::exchange(coming_, {});
  if (ahead_) post();
  return rows;
}

}  // namespace shiftron
