// Receives posted ahead.
#include "train/received_rows.h"

namespace shiftron {

void ReceivedRows::add_ring(int ring, int in_use, bool alike) {
  Ring& made = rings_[ring];
  const int slots = alike && stream_.device == DeviceKind::meta ? 1 : in_use + 1;
  for (int i = 0; i < slots; ++i) {
    made.slots.push_back(std::make_unique<Arena>(stream_, name_, plan_, "activations", (in_use + 1) / slots));
    if (stream_.device != DeviceKind::meta) continue;
    (void)made.slots.back()->allocate(dtype_, shape_);  // measured, whether a message comes here or not
    made.slots.back()->release();
  }
}

void ReceivedRows::expect(std::vector<int> rings) {
  CHECK(left_.empty() && !coming_.defined(), name_, ": ", left_.size(), " messages of before have not been received");
  left_.assign(rings.begin(), rings.end());
  post();
}

void ReceivedRows::post() {
  coming_ = {};
  if (left_.empty()) return;
  Ring& ring = rings_.at(left_.front());
  left_.pop_front();
  Arena& slot = *ring.slots[ring.next];
  ring.next = (ring.next + 1) % ring.slots.size();
  slot.release();
  coming_ = slot.allocate(dtype_, shape_);
  receive_ = channel_.recv(stream_, coming_, 0);
}

Tensor ReceivedRows::next() {
  CHECK(coming_.defined(), name_, ": no message is expected");
  receive_.wait(stream_);
  const Tensor rows = coming_;
  post();
  return rows;
}

}  // namespace shiftron
