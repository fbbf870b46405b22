// The queue of a second stream.
#include "core/side_stream.h"

#include "core/has_cuda.h"
#include "core/queue_cuda.h"

namespace shiftron {

SideStream::SideStream(Stream& stream, const std::string& name) : stream_(stream) {
  if (stream.queue == nullptr) return;
  queue_ = stream.queue->sibling(name);
  own_ = stream;
  own_.queue = queue_.get();
  if constexpr (kHasCuda) {
    if (stream.device == DeviceKind::cuda) own_.cuda = &context_of(*queue_);
  }
}

}  // namespace shiftron
