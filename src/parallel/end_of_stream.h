// The end of what a stream has been given so far, as work that one can wait for.
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

// Of operations that move nothing: done when the stream is so far.
inline Work end_of(Stream& stream) {
  if (stream.queue == nullptr) return {};
  return Work(stream, std::make_shared<EndOfStream>(stream));
}

}  // namespace shiftron
