// Marks of queues; without a queue, the time.
#include "core/event.h"

namespace shiftron {

void Event::record(Stream& stream, bool timed) {
  mark_ = nullptr;  // first, so that the queue can reuse its event
  if (stream.queue != nullptr) mark_ = stream.queue->mark(timed);
  if (mark_ == nullptr) time_ = std::chrono::steady_clock::now();
}

void Event::wait(Stream& stream) const {
  if (mark_ == nullptr) return;
  if (stream.queue != nullptr)
    stream.queue->wait(mark_);
  else
    mark_->wait();
}

void Event::wait_on_host() const {
  if (mark_ != nullptr) mark_->wait();
}

double Event::seconds_since(const Event& earlier) const {
  if (mark_ != nullptr && earlier.mark_ != nullptr) return mark_->seconds_since(*earlier.mark_);
  CHECK(mark_ == nullptr && earlier.mark_ == nullptr, "cannot measure the time between events of two devices");
  return std::chrono::duration<double>(time_ - earlier.time_).count();
}

void finish(Stream& stream) {
  Event end;
  end.record(stream);
  end.wait_on_host();
}

}  // namespace shiftron
