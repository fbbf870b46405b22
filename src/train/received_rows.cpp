// Receives posted ahead.
#include "train/received_rows.h"

namespace shiftron {

ReceivedRows::ReceivedRows(Stream& stream, Communicator* edge, int from, const std::string& name,
                           const MemoryPlan& plan, DType dtype, Shape shape, int in_use)
    : stream_(stream), edge_(edge), from_(from), name_(name), dtype_(dtype), shape_(shape) {
  if (edge == nullptr) return;
  const int slots = stream.device == DeviceKind::meta ? 1 : in_use + 1;
  for (int i = 0; i < slots; ++i) {
    slots_.push_back(std::make_unique<Arena>(stream, name, plan, "activations", (in_use + 1) / slots));
  }
}

void ReceivedRows::expect(int messages) {
  CHECK(left_ == 0 && !coming_.defined(), name_, ": ", left_, " messages of before have not been received");
  left_ = messages;
  post();
}

void ReceivedRows::post() {
  coming_ = {};
  if (left_ == 0) return;
  left_ -= 1;
  Arena& slot = *slots_[slot_];
  slot_ = (slot_ + 1) % slots_.size();
  slot.release();
  coming_ = slot.allocate(dtype_, shape_);
  receive_ = edge_->recv(stream_, coming_, from_);
}

Tensor ReceivedRows::next() {
  CHECK(coming_.defined(), name_, ": no message is expected");
  receive_.wait(stream_);
  const Tensor rows = coming_;
  post();
  return rows;
}

}  // namespace shiftron
