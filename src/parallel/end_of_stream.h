// The end of a stream's work so far, as a Work that can be waited for.
#pragma once

#include <memory>

#include "core/event.h"
#include "core/tensor.h"

namespace shiftron {

class EndOfStream final : public Pending {
 public:
  explicit EndOfStream(Stream& stream) { end_.record(stream); }
  void wait(Stream& stream) override { end_.wait(stream); }
  void wait_on_host() override { end_.wait_on_host(); }

 private:
  Event end_;
};

// For operations that move nothing: done when the stream's work so far is done.
inline Work end_of(Stream& stream) {
  if (stream.queue == nullptr) return {};
  return Work(stream, std::make_shared<EndOfStream>(stream));
}

}  // namespace shiftron
